"""The application behind the WSGI servers that bench/servers measures."""

BODY = b"x" * 600 + b"\n"


def application(_environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]
