"""open_test.py PAGE - a page of a real recording opens: no exception, no request, operations and memory."""
import sys

from browser import Browser

with Browser() as browser:
    page = browser.open(sys.argv[1])
    page.frame()
    for mode in (1, 2, 3):
        page.evaluate("rationTimeline.setMode(%d); rationTimeline.drawNow()" % mode)
    page.evaluate("rationTimeline.goToPeak()")
    page.frame()
    problems = page.complaints() + page.evaluate("rationTimeline.errors")
    ops, allocs, peak, said = page.evaluate(
        "[rationTimeline.data.op.count, rationTimeline.data.alloc.count, rationTimeline.peak(0).bytes,"
        " rationTimeline.data.facts.devices[0].peak_bytes]")
    print("%d operations, %d allocations, peak %d" % (ops, allocs, peak))
    if problems or not ops or not allocs or peak != said:
        sys.exit("%s; peak %d instead of %d" % (problems, peak, said))
