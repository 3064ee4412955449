#!/usr/bin/env bash
# The server's page in a browser: chat, refusals, the picture of the memory. See tests/page/serve_page_test.py.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash
source "$root/tests/cli/serve.bash"

timeout 300 python3 "$root/tests/page/browser.py" 2> err || {
    echo "skipped: no chromium that runs here: $(tail -1 err)"
    exit 77
}

start_server --budget 400MiB --connections 64 --device 'sim:fail_alloc=1;fail_allocs=3,cpu'
open_url=$url open_server=$server
start_server --connections 64 --api-key secret
python3 "$root/tests/page/serve_page_test.py" "$open_url" "$url" secret > out 2>&1 ||
    fail 'the page does not show what the server says'

# It names no other address, and has neither scripts nor styles within the markup.
ask 200 /
[ "$(grep -cE 'https?://' out)" = 0 ] || fail 'the page names an address'
grep -qE ' (on[a-z]+|style)=' out && fail 'a handler or a style in the markup'
says head "script-src 'self'" "default-src 'none'" "frame-ancestors 'none'"
ask 200 /page.js
says head 'text/javascript' nosniff
ask 404 /page.html
for server in $server $open_server; do
    stop_server
    equals 'exit code' 0 "$code"
done
echo 'ok'
