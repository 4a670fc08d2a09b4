// Segments without a connection, sent in answer to a frame.
//
// Owner: Hub. Guard: the engine's lock.
#pragma once

#include "stack/engine/incoming.h"
#include "stack/engine/part.h"
#include "stack/engine/reply_limit.h"
#include "stack/tcp/tcp.h"
#include "stack/wire/template.h"

namespace vireo {

struct Hub;

class Replies : Part {
 public:
  /// Answers a frame with its addresses swapped: needs no route and no neighbour.
  void reply(const Incoming& in, const tcp::Plan& plan) noexcept;
  /// Sends a segment without payload. A full ring drops it, as a busy network would.
  void send(Port& port, const wire::HeaderTemplate& header, const tcp::Plan& plan) noexcept;
  /// A segment without a matching connection (RFC 9293 §3.10.7.1): sends RST, if it may be
  /// answered.
  void refuse(const Incoming& in, const tcp::Segment& s, Instant now) noexcept;

 private:
  Hub& hub() const noexcept;
  ReplyLimit resets_{1000};  ///< to unknown flows
};

}  // namespace vireo
