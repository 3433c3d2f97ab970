#!/usr/bin/env bash
# Guess: `response.links` of requests has the whole URL of the next page, and finds it by `next` where rel has two words.
# Found: a semicolon, which a URL may have, ends the URL, and the relation is lost with it; two words are one key.
. "$(dirname "$0")/support.sh"

use_debian python3-requests python3-urllib3 python3-idna python3-certifi python3-chardet python3-charset-normalizer python3-six
cat > run.py <<'PY'
from requests.utils import parse_header_links

for link in (
    '<https://office.example/list?after=a;b>; rel="next"',
    '<https://office.example/list?after=a>; rel="next last"',
):
    print(parse_header_links(link))
PY
expect env PYTHONPATH=debian/usr/lib/python3/dist-packages python3 run.py <<'OUT'
[{'url': 'https://office.example/list?after=a'}]
[{'url': 'https://office.example/list?after=a', 'rel': 'next last'}]
OUT
