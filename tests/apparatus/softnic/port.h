// The one port of a device: does what was posted, moves frames between rings and wire.
//
// It has no thread of its own. A caller that posts, polls, arms or reads events does the device's
// work in passing, under the lock; so a frame costs two copies and no hand-over between threads,
// and what one thread sees is the same in every run. Rings that the program drives itself
// (mlx5dv_init_obj) are looked at whenever the port works: a doorbell that is watched makes it, for
// all else pump.h does. Frames that a full shared wire does not take wait in their send queue
// (VERBS.md: a wire pushes back), and a timer in the channels brings a sleeping program back to
// them. Owner: Nic. Thread: any; `lock` guards all. In lock-step both ports share one.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/apparatus/softnic/control.h"
#include "tests/apparatus/softnic/flow.h"
#include "tests/apparatus/softnic/memory.h"
#include "tests/apparatus/softnic/pump.h"
#include "tests/apparatus/softnic/queue_pair.h"
#include "tests/apparatus/softnic/wire.h"

namespace vireo::softnic {

/// Payload of one IBV_WR_TSO.
inline constexpr uint32_t kMaxSegmented = 65'536;

/// Faults that a test has ordered.
struct Faults {
  bool held = false;
  bool link_down = false;
  bool removed = false;
  unsigned fail_sends = 0;
  ibv_wc_status fail_status = IBV_WC_GENERAL_ERR;
  unsigned drops = 0;
  unsigned corruptions = 0;
  unsigned lost_events = 0;
};

class Port {
 public:
  explicit Port(std::mutex& m);

  // Everything below: holder of `lock`.

  /// Plugs the wire in. In lock-step `peer` is the port at its other end, else nullptr.
  void plug(std::unique_ptr<Wire> wire, Port* peer, uint32_t mtu);
  /// How to come back to a shared wire whose other end has left, and who is told of it.
  std::function<std::unique_ptr<Wire>()> rejoin;
  std::function<void(ibv_event_type)> tell;
  void unplug();
  bool is_plugged() const { return wire_ != nullptr; }

  void attach(Qp& qp) { qps_.push_back(&qp); }
  void detach(Qp& qp);
  void attach(Wq& wq) { wqs_.push_back(&wq); }
  void detach(Wq& wq) { std::erase(wqs_, &wq); }
  void attach(Channel& c);
  void detach(Channel& c);
  void attach(Cq& cq) { direct_cqs_.push_back(&cq); }  ///< of those with rings of their own
  void detach(Cq& cq);
  bool is_direct() const { return !direct_cqs_.empty() || direct_pairs_ > 0; }
  void note_direct(int pairs) { direct_pairs_ += pairs; }
  /// Every doorbell of those makes itself heard.
  bool is_watched() const;

  /// Asks the wire for what a rule wants. @return 0 or an errno: EOPNOTSUPP the wire brings TCP and
  /// UDP flows only.
  int want(const Flow& rule);
  void unwant(const Flow& rule);

  /// Errors: as ibv_post_send(3).
  int post(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad);
  int post(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  /// Does what can be done now. @return true: there was something.
  bool work();
  /// Sends at most `most` requests and takes in as many frames, even while held. @return how many
  /// it sent.
  unsigned step(unsigned most);
  /// After a completion queue was armed: the next frame rings, or is taken now.
  void arm();
  /// After a wake-up.
  void woken();
  /// A doorbell of the Port `port` has rung: does what it asks for, in the thread that rang it. Not
  /// for a holder of `lock`.
  static void rung(void* port);
  /// The core on which the program last rang; -1: none.
  int rung_on() const { return rung_on_; }
  /// How long the thread may be away that does what nobody calls for.
  struct Rest {
    long ns;                  ///< at most
    bool may_be_told = true;  ///< a frame of any port may end it sooner
    bool is_armed = false;    ///< one of this port does
  };
  /// Its turn. `told`: what it waited for has told of a frame. `by_word`: it waits by wire words,
  /// else by wait_fds().
  Rest tend(bool told, bool by_word);
  std::array<int, 2> wait_fds() const {
    return {wire_ != nullptr ? wire_->bell_fd() : -1, timer_.get()};
  }
  /// As Wire::word(), of a port that is plugged in.
  const std::atomic<uint32_t>* wait_word() const {
    return wire_ != nullptr ? wire_->word() : nullptr;
  }
  /// Every request comes back as WR_FLUSH_ERR, in order.
  void enter_error(Qp& qp);
  void enter_error(Wq& wq);
  void enter_all_errors();
  void inject(std::span<const std::byte> frame) {
    deliver(frame);
    end_sessions();
  }

  std::mutex& lock;
  /// Of all queues.
  unsigned posted_receives();

  MemoryTable memory;
  FlowTable flows;
  Faults faults;
  softnic_counts counts{};
  Driven driven{};  ///< rings that were given away

 private:
  enum class Sent : uint8_t { kDone, kWireFull, kFailed };
  bool look();
  bool has_send(Qp& qp);
  bool has_receive(Qp& qp);
  void flush_direct();
  int accept(Qp& qp, const ibv_send_wr& wr);
  int accept(Qp& qp, const ibv_recv_wr& wr);
  unsigned send_some(Qp& qp, unsigned most);
  Sent transmit(Qp& qp, SendRequest& r);
  Sent transmit_segments(Qp& qp, SendRequest& r);
  std::span<std::byte> room();
  void complete_send(Qp& qp, const SendRequest& r, ibv_wc_status status);
  bool receive();
  unsigned take_in(unsigned most);
  std::span<const std::byte> harmed(std::span<const std::byte> frame);
  bool deliver(std::span<const std::byte> frame);
  bool scatter(Qp& qp, std::span<const std::byte> frame, bool good, const Seen& seen);
  bool has_receive(Wq& wq, size_t bytes);
  bool scatter(Wq& wq, std::span<const std::byte> frame, const Seen& seen);
  bool collect(Qp& qp, std::span<const std::byte> frame, const Headers& h, bool good,
               const Seen& seen);
  void hand_over(Qp& qp, size_t session);
  void end_sessions();
  bool is_only_receiver() const;
  void complete(Cq& cq, Cqe e);
  void watch_peer();
  bool anyone_is_armed() const;

  std::unique_ptr<Wire> wire_;
  Port* peer_ = nullptr;
  uint32_t mtu_ = 0;
  bool backlog_ = false;            ///< frames wait for room on the wire
  unsigned idle_rounds_ = 0;        ///< calls that found nothing, since the peer was looked at
  std::vector<std::byte> payload_;  ///< of a frame that is being segmented
  std::vector<std::byte> harmed_;   ///< the last frame that was corrupted
  uint32_t harm_ = 1;               ///< draws where and how
  UniqueFd timer_;
  std::vector<Qp*> qps_;
  std::vector<Wq*> wqs_;
  std::vector<Channel*> channels_;
  std::vector<Cq*> direct_cqs_;
  int direct_pairs_ = 0;
  int rung_on_ = -1;
  // Of rung():
  bool wakes_later_ = false;
  const std::atomic<uint32_t>* to_wake_ = nullptr;
  // Of tend():
  uint64_t answers_ = 0;         ///< doorbells of sends that look() saw
  uint64_t answers_before_ = 0;  ///< at the last turn
  unsigned brought_ = 0;         ///< turns that found frames, and no answer since
  unsigned calm_ = 0;            ///< turns that found nothing
};

}  // namespace vireo::softnic
