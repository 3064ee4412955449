"""page_test.py RATION - compares what the timeline page draws with what is in the file.

Traces are written here, number by number (trace.py); RATION makes pages of them; Chromium opens
these and is asked, through window.rationTimeline and through mouse and keys, what it shows.
"""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile

import trace as t
from browser import Browser
from trace import Trace

RATION = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="ration-page-")
atexit.register(shutil.rmtree, FOLDER, True)
MIB = 1 << 20
MS = 1000000
# Each row of operations: its lane, how deep, how many.
ROWS = "rationTimeline.rows.map(r => [rationTimeline.data.lane(r.lane), r.depth, r.ops.length])"


def check(what, expected, got):
    if expected != got:
        raise AssertionError("%s: %r instead of %r" % (what, got, expected))


def page_of(trace, name):
    source, page = os.path.join(FOLDER, name + ".rntrace"), os.path.join(FOLDER, name + ".html")
    trace.write(source)
    subprocess.run([RATION, "profile", "html", source, "-o", page], check=True, stdout=subprocess.DEVNULL)
    return page


def open_page(browser, trace, name, **more):
    page = browser.open(page_of(trace, name), **more)
    page.frame()
    return page


def fine(page):
    """No exception, no complaint in the console, nothing asked for from the network."""
    check("errors", [], page.evaluate("rationTimeline.errors"))
    check("complaints", [], page.complaints())


def point(page, time, y):
    """Where a time and a height of the canvas (numbers, or expressions) are in the window."""
    return page.evaluate("""(({layout}) => {
        const box = document.getElementById("canvas").getBoundingClientRect();
        return [box.left + rationTimeline.xOf(%s), box.top + %s];
    })(rationTimeline)""" % (time, y))


def numbers_are_numbers(page):
    check("texts with NaN", False, page.evaluate("/NaN|Infinity|undefined/.test(document.body.innerText)"))


# ---- numbers ------------------------------------------------------------------------------------


def a_long_recording_arrives_whole_in_few_bytes(browser):
    """As a model's is: the same steps in every run, with times of their own. What the page has decoded is
    what was recorded, number by number, and takes little room."""
    runs, steps, noise, now = 60, 200, 3, MS
    trace = Trace()
    main = trace.lane("main")
    trace.alloc(main, 1, 0x100000, MIB, "activations")
    names = [trace.name("step %d" % i, "", "matmul f32 [rows, 64] -> f32 [rows, 8]") for i in range(steps)]
    tensors = trace.name("", "", "< 101000 f32 [rows, 64] x\n> 102000 f32 [rows, 8] y of it\n")
    ops, parts, counters = [], [], []
    for run in range(runs):
        for step in range(steps):
            noise = (noise * 1664525 + 1013904223) % 2**32
            end, address, size = now + 2000 + noise % 4096, 0x100000 + step % 7 * 4096, 64 * (step + 1)
            trace.event(main, now, t.BEGIN, address=tensors, size=run + 1, name=names[step])
            trace.alloc(main, now + 1, address, size, "activations", names[step], flags=t.INNER)
            trace.counter(main, now + 2, t.PREDICTED, 4096 * step)
            trace.free(main, end - 1, address, size, "activations", flags=t.INNER)
            trace.event(main, end, t.FINISH)
            ops.append([now, end])
            parts.append([now + 1, end - 1, size])
            counters.append(now + 2)
            now = end + 200 + noise % 256
    page = open_page(browser, trace, "long")
    got = page.evaluate("""(({data: {op, alloc, counter}}) => [
        Array.from(op.begin, (begin, i) => [begin, op.end[i]]),
        Array.from(alloc.begin, (begin, i) => [begin, alloc.end[i], alloc.bytes[i]]).slice(1),
        Array.from(counter.time)])(rationTimeline)""")
    check("operations", ops, got[0])
    check("parts", parts, got[1])
    check("counters", counters, got[2])
    empty, full = (os.path.getsize(page_of(each, name)) for each, name in ((Trace(), "empty"), (trace, "long")))
    per_event = (full - empty) / (5 * runs * steps)
    assert per_event < 2.7, "%.2f bytes an event" % per_event
    # The tensors of an operation, with the rows of its run.
    page.evaluate("rationTimeline.setRange(%d, %d)" % (ops[steps][0] - 1000, ops[steps][1] + 1000))
    page.frame()
    page.click(*point(page, (ops[steps][0] + ops[steps][1]) // 2, "layout.rows[0].top + 8"))
    text = page.evaluate("document.getElementById('panel').innerText")
    for part in ("matmul f32 [2, 64] -> f32 [2, 8]", "x, f32 [2, 64]", "y of it, f32 [2, 8]"):
        assert part in text, (part, text)
    fine(page)


# ---- lanes --------------------------------------------------------------------------------------


def sequential_operations_are_one_row(browser):
    """Eleven operations, six of them 20 us apart: the seed drew these as five parallel lanes."""
    trace = Trace()
    main, time = trace.lane("main"), MS
    for i in range(11):
        length = 20000 if i < 6 else 3 * MS
        trace.operation(main, time, time + length, trace.name("op %d" % i))
        time += length
    page = open_page(browser, trace, "sequential")
    check("rows", [["main", 0, 11]], page.evaluate(ROWS))
    page.evaluate("rationTimeline.setRange(%d, %d)" % (MS, MS + 6 * 20000))
    page.frame()
    boxes = page.evaluate("rationTimeline.rowBoxes(0).filter(b => b.count === 1 && b.width > 20).map(b => b.op)")
    check("boxes when it is near", [0, 1, 2, 3, 4, 5], boxes[:6])
    fine(page)


def nested_operations_are_two_rows(browser):
    trace = Trace()
    main = trace.lane("main")
    trace.event(main, 1000, t.BEGIN, name=trace.name("outer"))
    trace.operation(main, 2000, 3000, trace.name("inner"))
    trace.operation(main, 4000, 5000, trace.name("inner"))
    trace.event(main, 6000, t.FINISH)
    page = open_page(browser, trace, "nested")
    check("rows", [["main", 0, 1], ["main", 1, 2]], page.evaluate(ROWS))
    fine(page)


def two_threads_and_a_queue_are_three_lanes(browser):
    trace = Trace()
    first, second, queue = trace.lane("first"), trace.lane("second"), trace.lane("queue", True)
    trace.operation(first, 1000, 5000, trace.name("a"))
    trace.operation(second, 1000, 5000, trace.name("b"))
    trace.event(first, 6000, t.SPAN, address=queue, size=900, name=trace.name("copy"))
    page = open_page(browser, trace, "threads")
    check("rows", [["first", 0, 1], ["second", 0, 1], ["queue", 0, 1]], page.evaluate(ROWS))
    fine(page)


def merged_operations_are_all_counted(browser):
    """However narrow: the boxes of a row stand for all of its operations, at every zoom."""
    trace = Trace()
    main = trace.lane("main")
    for i in range(5000):
        trace.operation(main, i * 100, i * 100 + 90, trace.name("op %d" % (i % 7)))
    page = open_page(browser, trace, "merged")
    for share in (1, 0.3, 0.01):
        count, inside = page.evaluate("""(() => {
            const r = rationTimeline, end = 500000 * %g;
            r.setRange(0, end); r.drawNow();
            const {t0, t1} = r.view, {begin, end: ends} = r.data.op;
            return [r.rowBoxes(0).reduce((sum, box) => sum + box.count, 0),
                    begin.filter((b, i) => b < t1 && ends[i] >= t0).length];
        })()""" % share)
        # A group that begins within the view may end behind it.
        assert inside <= count <= inside + 16, (share, count, inside)
    fine(page)


def operations_are_drawn_where_they_were(browser):
    """The canvas's own pixels: something else than the ground within operations, the ground between and below them."""
    trace = Trace()
    main = trace.lane("main")
    for begin in (1000, 3000, 5000):
        trace.operation(main, begin, begin + 1000, trace.name("op"))
    page = open_page(browser, trace, "drawn")
    drawn = page.evaluate("""(() => {
        const r = rationTimeline, canvas = document.getElementById("canvas");
        r.setRange(0, 7000); r.drawNow();
        const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const isDrawn = (time, y) => {
            const at = 4 * (Math.round(y) * width + Math.round(r.xOf(time)));
            return data[at] + data[at + 1] + data[at + 2] < 740;
        };
        const top = r.layout.rows[0].top + 3, times = [500, 1600, 2600, 3600, 4600, 5600, 6600];
        return times.map(time => [isDrawn(time, top), isDrawn(time, top + 17)]);
    })()""")
    check("drawn", [[False, False], [True, False]] * 3 + [[False, False]], drawn)
    fine(page)


# ---- memory -------------------------------------------------------------------------------------


def hidden_peak():
    """A second of quiet, with one spike of 100 ns and 777 MiB in it."""
    trace = Trace("ration run hidden")
    main, name = trace.lane("main"), trace.name("weights", "layer 0", "f16 [4096, 4096]")
    trace.alloc(main, 0, 0x10000000, 64 * MIB, "weights", name)
    for i in range(2000):
        at = 1000 + i * 500000
        trace.alloc(main, at, 0x40000000, MIB + i, "activations")
        if i == 1234:
            trace.alloc(main, at + 100, 0x80000000, 777 * MIB + 5, "workspace", trace.name("spike"))
            trace.free(main, at + 200, 0x80000000, 777 * MIB + 5, "workspace")
        trace.free(main, at + 300000, 0x40000000, MIB + i, "activations")
    trace.counter(main, 10, t.BUDGET, 1 << 30)
    trace.counter(main, 10, t.PREDICTED_PEAK, 900 * MIB)
    for i in range(100):
        trace.counter(main, 20 + i * 10000000, t.PREDICTED, 65 * MIB)
    trace.event(main, 5000, t.MARK, name=trace.name("server_ready"), purpose=t.STAGE)
    trace.event(main, 600 * MS, t.MARK, size=5 << 30, purpose=t.REFUSAL)
    trace.events[main].sort(key=lambda event: int.from_bytes(event[:8], "little"))
    return trace, 64 * MIB + MIB + 1234 + 777 * MIB + 5, 1000 + 1234 * 500000 + 100


def the_peak_is_drawn_at_every_zoom(browser):
    trace, peak, moment = hidden_peak()
    for scale in (1, 2):
        page = open_page(browser, trace, "peak%d" % scale, scale=scale)
        check("peak", peak, page.evaluate("rationTimeline.peak(0).bytes"))
        check("the file's peak", peak, page.evaluate("rationTimeline.data.facts.devices[0].peak_bytes"))
        check("its moment", moment, page.evaluate("rationTimeline.peak(0).time"))
        for span in (1100 * MS, 700 * MS, 90 * MS, 1 * MS, 1000, 30):
            column, purposes = page.evaluate("""(() => {
                const r = rationTimeline;
                r.setRange(%d - %f, %d + %f); r.drawNow();
                const columns = r.memoryColumns(0), width = columns.length;
                const x = Math.floor((%d - r.view.t0) / (r.view.t1 - r.view.t0) * width);
                const best = columns.reduce((best, c, i) => c.reserved > columns[best].reserved ? i : best, 0);
                return [[x - best, columns[best].reserved, columns[best].active], columns[best].purposes];
            })()""" % (moment, span * 0.6, moment, span * 0.4, moment))
            check("peak within %d ns" % span, [peak, peak], column[1:])
            assert -1 <= column[0] <= 1, ("the peak's pixel", span, column)
            check("its purposes", [64 * MIB, 0, MIB + 1234, 0, 0, 777 * MIB + 5], purposes[:6])
        live = page.evaluate("rationTimeline.liveAtPeak(0).map(a => rationTimeline.data.alloc.bytes[a])")
        check("live at the peak", [MIB + 1234, 64 * MIB, 777 * MIB + 5], sorted(live))
        fine(page)


def the_peaks_pixels_have_its_colour(browser):
    """Not only computed: the canvas has the workspace's colour above all else in that column."""
    trace, _, moment = hidden_peak()
    page = open_page(browser, trace, "pixels")
    colour = page.evaluate("""(() => {
        const r = rationTimeline, canvas = document.getElementById("canvas");
        r.fitAll(); r.drawNow();
        const panel = r.layout.panels[0], x = Math.floor(r.xOf(%d));
        const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const colours = {};
        for (let y = Math.round(panel.top + panel.height * 0.4); y < panel.top + panel.height * 0.8; y++) {
            const at = 4 * (y * width + x), key = [data[at], data[at + 1], data[at + 2]].join();
            colours[key] = (colours[key] || 0) + 1;
        }
        return Object.entries(colours).sort((a, b) => b[1] - a[1])[0][0];
    })()""" % moment)
    check("colour", "221,204,119", colour)
    fine(page)


def a_click_on_the_peak_lists_what_was_live(browser):
    trace, peak, _ = hidden_peak()
    page = open_page(browser, trace, "click")
    page.key("p")
    text = page.evaluate("document.getElementById('panel').innerText")
    for wanted in ("spike", "weights", "777 MiB", "64.0 MiB", "By purpose"):
        assert wanted in text, (wanted, text)
    page.key("Escape")
    check("panel after Esc", "Overview", page.evaluate("document.querySelector('#panel h2').textContent"))
    page.evaluate("rationTimeline.fitAll(), rationTimeline.drawNow()")
    x, y = point(page, "rationTimeline.peak(0).time", "layout.panels[0].top + layout.panels[0].height / 2")
    page.click(int(x) + 0.5, y)
    text = page.evaluate("document.getElementById('panel').innerText")
    assert "spike" in text and "777 MiB" in text, text
    fine(page)


def arenas_unused_rest_is_reserved(browser):
    trace = Trace()
    main = trace.lane("main")
    trace.alloc(main, 100, 0x10000000, 100 * MIB, "weights")
    trace.alloc(main, 200, 0x10000000, 30 * MIB, "weights", flags=t.INNER)
    trace.alloc(main, 250, 0x14000000, 10 * MIB, "kv", flags=t.INNER)
    trace.alloc(main, 300, 0x12000000, 20 * MIB, "activations", flags=t.INNER)
    trace.free(main, 350, 0x14000000, 10 * MIB, "kv", flags=t.INNER)
    trace.free(main, 900, 0x12000000, 20 * MIB, "activations", flags=t.INNER)
    trace.alloc(main, 1000, 0x7f0000000000, 1 * MIB, "io")
    trace.alloc(main, 1200, 0x12000000, 20 * MIB, "activations", flags=t.INNER)
    trace.operation(main, 1500, 2000, trace.name("op"))
    page = open_page(browser, trace, "arena")
    text = page.evaluate("document.getElementById('panel').innerText")
    assert "most in use\n60.0 MiB" in text, text
    # Of the states with the most reserved, the one with the most in use.
    check("peak", {"bytes": 101 * MIB, "time": 1200}, page.evaluate("rationTimeline.peak(0)"))
    check("the file's", 1200, page.evaluate("rationTimeline.data.facts.devices[0].peak_ns"))
    page.evaluate("rationTimeline.setRange(0, 2000), rationTimeline.drawNow()")
    columns = page.evaluate("rationTimeline.memoryColumns(0).map(c => [c.reserved, c.active])")
    x = len(columns) * 400 // 2000
    check("at 400 ns", [100 * MIB, 50 * MIB], columns[x])
    check("at 950 ns", [100 * MIB, 30 * MIB], columns[len(columns) * 950 // 2000])
    # Two pieces of addresses, without the gap between them.
    check("pieces", [100 * MIB, MIB], page.evaluate("Array.from(rationTimeline.data.piece.bytes)"))
    check("places", [1, 100 * MIB + 1], page.evaluate("Array.from(rationTimeline.data.piece.place)"))
    page.evaluate("rationTimeline.setMode(2)")
    page.frame()
    found = page.evaluate("""(() => {
        const r = rationTimeline, p = r.layout.panels[0];
        const at = (mib) => r.allocationAt(p, 500, p.top + p.height - 1 - (p.height - 14) * mib / 101);
        return [at(10), at(40), at(80)].map(a => [r.data.alloc.bytes[a], r.data.alloc.flags[a]]);
    })()""")
    check("under the cursor", [[30 * MIB, 1], [20 * MIB, 1], [100 * MIB, 2]], found)
    fine(page)


def hiding_a_purpose_takes_it_out(browser):
    trace, peak, moment = hidden_peak()
    page = open_page(browser, trace, "legend")
    page.evaluate("[...document.querySelectorAll('#legend button')].find(b => b.textContent === 'workspace').click()")
    page.frame()
    check("peak without workspace", 64 * MIB + MIB + 1999, page.evaluate("rationTimeline.peak(0).bytes"))
    fine(page)


# ---- ranges, search, keys -----------------------------------------------------------------------


def a_range_sums_up(browser):
    trace, _, moment = hidden_peak()
    page = open_page(browser, trace, "range")
    begin, end = moment - 2500000, moment + 1500000
    life = [(0, 1 << 62, 64 * MIB, 0), (moment, moment + 100, 777 * MIB + 5, 5)]
    life += [(1000 + i * 500000, 301000 + i * 500000, MIB + i, 2) for i in range(2000)]
    for purpose in (0, 2, 5):
        mine = [x for x in life if x[3] == purpose]
        expected = {
            "before": sum(s for b, e, s, _ in mine if b < begin <= e),
            "allocated": sum(s for b, e, s, _ in mine if begin <= b < end),
            "allocations": sum(1 for b, e, s, _ in mine if begin <= b < end),
            "freed": sum(s for b, e, s, _ in mine if begin <= e < end),
            "frees": sum(1 for b, e, s, _ in mine if begin <= e < end),
            "after": sum(s for b, e, s, _ in mine if b < end <= e)}
        sums = page.evaluate("rationTimeline.range(%d, %d).sums[%d]" % (begin, end, purpose))
        check("sums of purpose %d" % purpose, expected, sums)
    # Shift and drag shows the same table.
    page.evaluate("rationTimeline.setRange(%d, %d); rationTimeline.drawNow()" % (begin - 4 * MS, end + 4 * MS))
    page.drag(*point(page, begin, 120), *point(page, end, 120), modifiers=8)
    text = page.evaluate("document.getElementById('panel').innerText")
    for wanted in ("Range of", "allocated", "freed", "workspace", "spike"):
        assert wanted in text, (wanted, text)
    fine(page)


def search_finds_and_cycles(browser):
    trace = Trace()
    main = trace.lane("main")
    for i in range(9):
        name = trace.name("norm" if i % 3 == 0 else "MatMul", "layer %d" % i, "f16 [%d]" % i)
        trace.operation(main, i * 1000, i * 1000 + 900, name)
    page = open_page(browser, trace, "search")
    page.key("/")
    page.call("Input.insertText", text="matmul")
    page.frame()
    count = "document.getElementById('search-count').textContent"
    check("count", "6", page.evaluate(count))
    for expected in ("1 / 6", "2 / 6"):
        page.key("Enter")
        check("after Enter", expected, page.evaluate(count))
    check("pinned", 2, page.evaluate("rationTimeline.view.pinned.index"))
    page.key("Enter", modifiers=8)
    page.key("Enter", modifiers=8)
    check("after Shift+Enter twice", "6 / 6", page.evaluate(count))
    page.key("Escape")
    page.key("f", modifiers=2)
    check("Ctrl+F", "search", page.evaluate("document.activeElement.id"))
    check("by shape", 1, page.evaluate("rationTimeline.search('[7]')"))
    check("by block", 1, page.evaluate("rationTimeline.search('layer 4')"))
    check("nothing", 0, page.evaluate("rationTimeline.search('no such name')"))
    page.frame()
    fine(page)


def mouse_and_keys_move_the_view(browser):
    trace, _, _ = hidden_peak()
    trace.operation(1, 1001 * MS, 1002 * MS, trace.name("last"))
    page = open_page(browser, trace, "keys")
    where = "[rationTimeline.view.t0, rationTimeline.view.t1]"
    whole = page.evaluate(where)
    x, y = point(page, 700 * MS, 150)
    under = 700 * MS
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    page.frame()
    t0, t1 = page.evaluate(where)
    assert t1 - t0 < (whole[1] - whole[0]) * 0.7, "the wheel zooms"
    assert abs(point(page, under, 150)[0] - x) < 1, "at the cursor"
    page.drag(x, y, x - 200, y)
    moved = page.evaluate(where)
    assert moved[0] > t0 and abs((moved[1] - moved[0]) - (t1 - t0)) < 2, "dragging pans"
    left, right = (lambda a, b: b[0] < a[0]), (lambda a, b: b[0] > a[0])
    nearer, farther = (lambda a, b: b[1] - b[0] < a[1] - a[0]), (lambda a, b: b[1] - b[0] > a[1] - a[0])
    keys = {"a": left, "d": right, "w": nearer, "s": farther, "ArrowLeft": left, "ArrowRight": right}
    for key, does in keys.items():
        before = page.evaluate(where)
        page.key(key)
        assert does(before, page.evaluate(where)), key
    page.key("r")
    check("selected", page.evaluate(where), page.evaluate("Object.values(rationTimeline.view.selection)"))
    page.key("Escape")
    check("selected", None, page.evaluate("rationTimeline.view.selection"))
    page.key("m")
    check("markers", 1, page.evaluate("rationTimeline.view.markers.length"))
    for key, mode in (("2", 2), ("3", 3), ("1", 1)):
        page.key(key)
        check("view", mode, page.evaluate("rationTimeline.view.mode"))
    page.key("?")
    check("help", True, page.evaluate("document.getElementById('keys').open"))
    page.evaluate("document.getElementById('keys').close()")
    page.key("0")
    check("everything", whole, page.evaluate(where))
    # A double click fits what is under the cursor; on nothing, everything.
    page.evaluate("rationTimeline.setRange(990e6, 1010e6), rationTimeline.drawNow()")
    page.click(*point(page, 1001.5 * MS, "layout.rows[0].top + 8"), count=2)
    t0, t1 = page.evaluate(where)
    assert 1000 * MS < t0 < 1001 * MS and 1002 * MS < t1 < 1003 * MS, (t0, t1)
    check("pinned", "op", page.evaluate("rationTimeline.view.pinned.kind"))
    page.click(x, y, count=2)
    check("everything", whole, page.evaluate(where))
    page.evaluate("document.getElementById('minimap').dispatchEvent(new Event('dblclick'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    check("on paper", "light", page.evaluate("rationTimeline.view.theme"))
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    fine(page)


def the_minimap_has_a_brush(browser):
    trace, _, _ = hidden_peak()
    page = open_page(browser, trace, "minimap")
    left, top, width = page.evaluate("""(() => {
        const box = document.getElementById("minimap").getBoundingClientRect(), gutter = rationTimeline.layout.left;
        return [box.left + gutter, box.top, box.width - gutter];
    })()""")
    page.drag(left + width * 0.25, top + 20, left + width * 0.5, top + 20)
    end = page.evaluate("rationTimeline.data.end")
    t0, t1 = page.evaluate("[rationTimeline.view.t0, rationTimeline.view.t1]")
    assert abs(t0 / end - 0.25) < 0.01 and abs(t1 / end - 0.5) < 0.01, ("a new brush", t0 / end, t1 / end)
    page.drag(left + width * 0.3, top + 20, left + width * 0.4, top + 20)
    t0, t1 = page.evaluate("[rationTimeline.view.t0, rationTimeline.view.t1]")
    assert abs(t0 / end - 0.35) < 0.01 and abs(t1 / end - 0.6) < 0.01, ("the brush moved", t0 / end, t1 / end)
    fine(page)


def the_tooltip_says_what_is_known(browser):
    trace = Trace()
    main = trace.lane("main")
    trace.event(main, 1000, t.BEGIN, name=trace.name("matmul", "layer 3", "f16 [16, 64]"))
    trace.alloc(main, 1100, 0x10000000, 3 * MIB, "activations")
    trace.event(main, 501000, t.FINISH)
    page = open_page(browser, trace, "tooltip")
    page.mouse("mouseMoved", *point(page, 250000, "layout.rows[0].top + 8"))
    page.frame()
    text = page.evaluate("document.getElementById('tooltip').innerText")
    for wanted in ("matmul", "500 µs", "0.001 ms", "0.501 ms", "+3.00 MiB", "f16 [16, 64]", "layer 3", "main"):
        assert wanted in text, (wanted, text)
    page.key("d")
    check("hidden when the view moves", True, page.evaluate("document.getElementById('tooltip').hidden"))
    fine(page)


def stages_at_both_edges_are_named(browser):
    trace = Trace()
    main = trace.lane("main")
    trace.alloc(main, 0, 0x1000, MIB, "io")
    trace.event(main, 0, t.MARK, name=trace.name("begin"), purpose=t.STAGE)
    trace.event(main, 1000, t.MARK, name=trace.name("final_cleanup"), purpose=t.STAGE)
    page = open_page(browser, trace, "stages", before="""
        const fillText = CanvasRenderingContext2D.prototype.fillText;
        window.texts = {};
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            texts[text] = [x, this.textAlign, this.measureText(text).width];
            fillText.call(this, text, x, y);
        };""")
    x, align, width = page.evaluate("texts.final_cleanup")
    left, right = page.evaluate("[rationTimeline.layout.left, rationTimeline.layout.right]")
    check("beside the last flag", "right", align)
    assert left < x - width and x < right, (x, width)
    x, align, width = page.evaluate("texts.begin")
    check("beside the first flag", "left", align)
    fine(page)


# ---- strange files ------------------------------------------------------------------------------


def hostile_names_stay_names(browser):
    bad = "</script><img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script>"
    more = ["<!--", "]]>", "\u2028 \\u003c ${window.hacked=3} ` ' \"", "http://example.invalid/x.js", "\x01\x1b[31m"]
    trace = Trace("ration run " + bad)
    main = trace.lane(bad)
    device = trace.device(bad)
    for i, name in enumerate([bad] + more):
        trace.operation(main, i * 1000, i * 1000 + 900, trace.name(name, bad, bad))
    trace.alloc(main, 9000, 0x10000, MIB, "weights", trace.name(bad), device)
    trace.event(main, 9500, t.MARK, name=trace.name(bad), purpose=t.CHECKPOINT)
    page = open_page(browser, trace, "hostile")
    for call in ("search('script')", "nextHit(1)", "select(0, 9900)", "goToPeak()"):
        page.evaluate("rationTimeline." + call)
        page.frame()
    check("executed", None, page.evaluate("window.hacked"))
    check("elements made of names", 0, page.evaluate("document.querySelectorAll('img').length"))
    check("names", [bad] + more[:-1], page.evaluate("[1, 2, 3, 4, 5].map(i => rationTimeline.data.name(i))"))
    fine(page)


def older_browsers_show_the_same(browser):
    """Without Uint8Array.fromBase64, which is new."""
    trace, peak, moment = hidden_peak()
    page = open_page(browser, trace, "older", before="delete Uint8Array.fromBase64")
    check("peak", {"bytes": peak, "time": moment}, page.evaluate("rationTimeline.peak(0)"))
    fine(page)


def strange_sizes_are_drawn(browser):
    """Nothing, one event, no operations, sixteen devices, no duration: no exception, no NaN."""
    empty = Trace()
    one = Trace()
    one.alloc(one.lane("main"), 0, 0x10000, 5, "kv")
    op = Trace()
    op.operation(op.lane("main"), 0, 0, op.name("instant"))
    many = Trace()
    main = many.lane("main")
    for device in range(16):
        if device:
            many.device("gpu %d" % device)
        many.alloc(main, device + 5, 0x10000, (device + 1) * MIB, "weights", device=device)
    deep = Trace()
    lane = deep.lane("deep")
    for depth in range(300):
        deep.event(lane, depth * 10, t.BEGIN, name=deep.name("level"))
    huge = Trace()
    lane = huge.lane("huge")
    huge.alloc(lane, 0, (1 << 64) - 1, 1 << 47, "weights")
    huge.alloc(lane, 1 << 50, 0x5000, 1, "kv")
    huge.event(lane, 1 << 51, t.MARK, size=(1 << 64) - 1, purpose=t.REFUSAL)
    huge.counter(lane, 5, t.BUDGET, (1 << 64) - 1)
    huge.operation(lane, 1 << 51, 1 << 52, huge.name("long" * 1000))
    strange = (("empty", empty), ("one", one), ("op", op), ("many", many), ("deep", deep), ("huge", huge))
    for name, trace in strange:
        page = open_page(browser, trace, name)
        for mode in (1, 2, 3):
            page.evaluate("rationTimeline.setMode(%d), rationTimeline.fitAll(), rationTimeline.drawNow()" % mode)
            page.evaluate("rationTimeline.goToPeak(); rationTimeline.select(0, 50); rationTimeline.search('x')")
            for key in ("w", "s", "a", "f", ".", "m", "p", "y", "Escape", "0"):
                page.key(key)
            page.mouse("mouseMoved", 600, 300)
            page.frame()
        numbers_are_numbers(page)
        fine(page)
        if name == "many":
            check("devices", 16, page.evaluate("rationTimeline.layout.panels.length / 2"))
        if name == "deep":
            check("rows", 300, page.evaluate("rationTimeline.rows.length"))


def light_dark_and_words(browser):
    trace, peak, _ = hidden_peak()
    page = open_page(browser, trace, "dark", dark=True)
    check("theme", "dark", page.evaluate("rationTimeline.view.theme"))
    page.evaluate("document.getElementById('theme').click()")
    check("theme", "light", page.evaluate("document.documentElement.dataset.theme"))
    text = page.evaluate("document.getElementById('summary').textContent")
    assert "Peak of host: 842 MiB" in text and "workspace 777 MiB" in text, text
    check("command", "ration run hidden", page.evaluate("document.getElementById('command').textContent"))
    unnamed = page.evaluate("""[...document.querySelectorAll("button, input, canvas, aside")]
        .filter(e => !e.textContent.trim() && !e.getAttribute("aria-label")).length""")
    check("controls without a name", 0, unnamed)
    fine(page)


TESTS = [
    a_long_recording_arrives_whole_in_few_bytes,
    sequential_operations_are_one_row,
    nested_operations_are_two_rows,
    two_threads_and_a_queue_are_three_lanes,
    merged_operations_are_all_counted,
    operations_are_drawn_where_they_were,
    the_peak_is_drawn_at_every_zoom,
    the_peaks_pixels_have_its_colour,
    a_click_on_the_peak_lists_what_was_live,
    arenas_unused_rest_is_reserved,
    hiding_a_purpose_takes_it_out,
    a_range_sums_up,
    search_finds_and_cycles,
    mouse_and_keys_move_the_view,
    the_minimap_has_a_brush,
    the_tooltip_says_what_is_known,
    stages_at_both_edges_are_named,
    hostile_names_stay_names,
    older_browsers_show_the_same,
    strange_sizes_are_drawn,
    light_dark_and_words,
]


def main():
    failed = 0
    with Browser() as browser:
        for test in TESTS:
            try:
                test(browser)
                print("ok  ", test.__name__)
            except Exception as problem:
                failed += 1
                print("FAIL", test.__name__, "-", problem)
    sys.exit(1 if failed else 0)


main()
