#!/usr/bin/env bash
# The timeline page in a browser: what it draws is what is in the file. See tests/page/page_test.py. Also a page of a
# real run, by the program itself.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash

timeout 300 python3 "$root/tests/page/browser.py" 2> err || {
    echo "skipped: no chromium that runs here: $(tail -1 err)"
    exit 77
}

python3 "$root/tests/page/page_test.py" "$ration" > out 2>&1 || fail 'the page does not show what is in the file'

# A run, recorded; its page stands alone.
expect 0 "$ration" run -p 'Once upon a time' -n 8 --profile=run.rntrace
expect 0 "$ration" profile html run.rntrace -o run.html
[ "$(grep -cE 'https?://' run.html)" = 0 ] || fail 'the page names an address'
expect 0 python3 "$root/tests/page/open_test.py" run.html
echo 'ok'
