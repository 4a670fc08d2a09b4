"""Parts of the programs that suites run as peers."""

# The first line on a connection says what to do with it; no words at the end of the stream.
LINE_OF = """
def line_of(c):
    line = b""
    while not line.endswith(b"\\n"):
        byte = c.recv(1)
        if not byte: return []
        line += byte
    return line.decode().split()
"""
