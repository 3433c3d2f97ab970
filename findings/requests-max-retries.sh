#!/usr/bin/env bash
# Guess: `max_retries=3` of an adapter of requests repeats failed connections only, as its documentation says, and returns a 429 to the caller.
# Found: with Retry-After it waits and repeats GET and PUT three times, after 429 and 503; one POST is sent.
. "$(dirname "$0")/support.sh"

use_debian python3-requests python3-urllib3 python3-idna python3-certifi python3-chardet python3-charset-normalizer python3-six
cat > run.py <<'PY'
import http.server
import threading

import requests

seen = []


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        seen.append(self.path)
        self.send_response(int(self.path[1:]))
        self.send_header('Retry-After', '1')
        self.send_header('Content-Length', '0')
        self.end_headers()

    do_GET = do_PUT = do_POST = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
session = requests.Session()
session.mount('http://', requests.adapters.HTTPAdapter(max_retries=3))
for method, status in (('GET', 429), ('PUT', 503), ('POST', 429), ('GET', 500)):
    seen.clear()
    response = session.request(method, f'http://127.0.0.1:{server.server_port}/{status}')
    print(method, response.status_code, 'sent', len(seen))
PY
expect env PYTHONPATH=debian/usr/lib/python3/dist-packages python3 run.py <<'OUT'
GET 429 sent 4
PUT 503 sent 4
POST 429 sent 1
GET 500 sent 1
OUT
