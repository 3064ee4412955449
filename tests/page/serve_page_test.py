"""serve_page_test.py URL KEYED_URL KEY - the server's page in a browser.

What only the real program can show is asked of the servers at the two addresses (the second wants the key). All else
comes from a server of the test's own, which says what a test needs it to say (fake_server.py), with the real one's page.
"""
import json
import sys
import time
import urllib.request

from browser import Browser
from fake_server import HEALTH, MIB, FakeServer, put_events, put_problem

REAL, KEYED, KEY = sys.argv[1:]
HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><b>bold</b> &amp;'
SHIFT = 8
PAGES = []


def check(what, expected, got):
    if expected != got:
        raise AssertionError("%s: %r instead of %r" % (what, got, expected))


def wait(page, expression, what, seconds=600):
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise AssertionError("%s: not within %d s; the page says: %s" % (
                what, seconds, page.evaluate("document.body.innerText")[-600:]))
        time.sleep(0.02)


def text_of(page, id):
    return page.evaluate("byId('%s').innerText" % id)


def open_page(browser, url, is_folded=False, **more):
    page = browser.open(url, **more)
    page.url = url
    PAGES.append(page)
    if not is_folded and more.get("width", 1000) > 800:
        page.evaluate("byId('look').open = true")
    return page


def close_pages():
    """Those of earlier tests would go on asking."""
    while PAGES:
        PAGES.pop().call("Page.close")


def open_fake(browser, **more):
    page = open_page(browser, FAKE.url, **more)
    wait(page, "samples.length > 0", "the first look")
    page.frame()
    return page


def say(page, text):
    page.evaluate("byId('text').value = %s; send(); 0" % json.dumps(text))


def answer_to(page, text):
    say(page, text)
    wait(page, "answering === null", "an end of the answer")
    return page.evaluate("[...document.querySelectorAll('.answer')].pop().innerText")


def fine(page, *statuses):
    """No exception, nothing in the console but the refusals that were meant, nobody else asked."""
    expected = ["status of %d" % status for status in statuses]
    for complaint in page.complaints():
        if complaint.startswith("request: " + page.url.rstrip("/") + "/"):
            continue
        if not any(words in complaint for words in expected):
            raise AssertionError(complaint)


# ---- the real program ---------------------------------------------------------------------------


def the_page_shows_the_real_server(browser):
    page = open_page(browser, REAL)
    wait(page, "byId('status').textContent === 'ready' && drawn.length > 0", "ready")
    with urllib.request.urlopen(REAL + "/health") as answer:
        health = json.load(answer)
    check("model", health["model"], text_of(page, "model"))
    page.evaluate("window.theirs = %s" % json.dumps(health))
    check("budget", True, page.evaluate(
        "document.querySelector('tr[data-key=budget] .bytes').textContent === bytesText(theirs.memory.budget_bytes)"))
    check("weights", True, page.evaluate(
        "samples[0].devices[0].purposes.weights === theirs.memory.devices[0].purposes.weights && "
        "document.querySelector('tr[data-key=weights] .bytes').textContent === "
        "bytesText(theirs.memory.devices[0].purposes.weights)"))
    check("a device that was left", 1, page.evaluate("drawn.length"))
    assert "target 2 of 2" in text_of(page, "device"), text_of(page, "device")
    assert "injected_fault" in text_of(page, "attempts"), text_of(page, "attempts")
    fine(page)


def a_story_streams(browser):
    """The built-in model continues texts: the page knows, and asks for that."""
    page = open_page(browser, REAL)
    wait(page, "samples.length > 0", "the first look")
    page.evaluate("""window.changes = 0; new MutationObserver((list) => {
        changes += list.filter((m) => m.type === "characterData").length;
    }).observe(byId("turns"), {subtree: true, characterData: true})""")
    said = answer_to(page, "Once upon a time")
    assert len(said) > 100 and "tokens/s" in said and "first after" in said, said
    pieces = page.evaluate("changes")
    assert pieces > 10, "%d pieces" % pieces
    check("system prompt shown", True, page.evaluate("byId('system-label').hidden"))
    check("one more", True, len(answer_to(page, "The dog")) > 20)
    fine(page)


def a_key_is_asked_for(browser):
    page = open_page(browser, KEYED)
    wait(page, "!byId('access').hidden", "a field for the key")
    check("focus", "key", page.evaluate("document.activeElement.id"))
    page.call("Input.insertText", text="wrong")
    page.key("Enter")
    wait(page, "byId('access-note').textContent !== ''", "why it is wrong")
    page.evaluate("byId('key').value = ''; byId('key').focus()")
    page.call("Input.insertText", text=KEY)
    page.key("Enter")
    wait(page, "byId('access').hidden && samples.length > 0", "a look with the key")
    check("story", True, len(answer_to(page, "Once upon a time")) > 20)
    fine(page, 401, 400)


# ---- the conversation ---------------------------------------------------------------------------


def a_conversation_is_sent_whole(browser):
    usage = {"choices": [], "usage": {"completion_tokens": 17}}
    FAKE.answer = lambda handler, _: put_events(handler, ["Hello", ", ", "you.", usage])
    page = open_fake(browser)
    page.evaluate("byId('system').value = 'Be brief.'; byId('temperature').value = 0.5")
    first = answer_to(page, "Hi")
    assert "Hello, you." in first and "17 tokens" in first, first
    answer_to(page, "And then?")
    (path, body), (_, second) = FAKE.asked
    check("path", "/v1/chat/completions", path)
    check("body", {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                   "temperature": 0.5, "max_tokens": 256, "stream": True, "stream_options": {"include_usage": True}}, body)
    check("roles", ["system", "user", "assistant", "user"], [m["role"] for m in second["messages"]])
    check("what was answered", "Hello, you.", second["messages"][2]["content"])
    check("read out", "Hello, you.", text_of(page, "spoken"))
    page.evaluate("byId('clear').click()")
    answer_to(page, "Anew")
    check("a new conversation", ["system", "user"], [m["role"] for m in FAKE.asked[2][1]["messages"]])
    fine(page)


def stop_stops(browser):
    FAKE.answer = FAKE.answer_without_end
    page = open_fake(browser)
    for how in ("button", "key"):
        FAKE.is_left.clear()
        say(page, "Go on")
        wait(page, "[...document.querySelectorAll('.words')].pop().textContent.length > 40", "some text")
        check("buttons", [True, False], page.evaluate("[byId('send').hidden, byId('stop').hidden]"))
        if how == "button":
            page.evaluate("byId('stop').click()")
        else:
            page.key("Escape")
        wait(page, "answering === null", "an end")
        assert FAKE.is_left.wait(20), "the server was not told"
        words = "[...document.querySelectorAll('.words')].pop().textContent"
        kept = page.evaluate(words)
        page.frame()
        check("text after the stop", kept, page.evaluate(words))
        assert "stopped" in page.evaluate("[...document.querySelectorAll('.facts')].pop().textContent")
        check("buttons", [False, True], page.evaluate("[byId('send').hidden, byId('stop').hidden]"))
    say(page, "Go on")
    wait(page, "[...document.querySelectorAll('.words')].pop().textContent.length > 40", "some text")
    page.evaluate("byId('clear').click()")
    wait(page, "answering === null", "an end")
    page.frame()
    check("left of it in a new conversation", [0, ""], page.evaluate("[conversation.length, byId('spoken').textContent]"))
    fine(page)


def keys_are_enough(browser):
    page = open_fake(browser)
    check("focus", "text", page.evaluate("document.activeElement.id"))
    page.call("Input.insertText", text="one")
    page.key("Enter", SHIFT)
    page.call("Input.insertText", text="two")
    check("asked", 0, len(FAKE.asked))
    page.key("Enter")
    wait(page, "answering === null && conversation.length === 2", "an answer")
    check("said", "one\ntwo", FAKE.asked[0][1]["messages"][0]["content"])
    check("field", "", page.evaluate("byId('text').value"))
    page.key("Enter")
    check("nothing is not sent", 1, len(FAKE.asked))
    page.evaluate("byId('max-tokens').value = ''; byId('text').value = 'three'; send()")
    check("a wrong setting is shown", [True, "max-tokens"], page.evaluate(
        "[byId('settings').open, document.activeElement.id]"))
    check("and not sent", 1, len(FAKE.asked))
    fine(page)


def controls_have_names(browser):
    page = open_fake(browser)
    page.evaluate("byId('settings').open = true; byId('access').hidden = false")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("textbox", "button", "spinbutton", "image", "img", "region", "DisclosureTriangle", "table")
    named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree
             if not n.get("ignored") and n.get("role", {}).get("value") in roles]
    check("without a name", [], [role for role, name in named if not name.strip()])
    names = [name for _, name in named]
    for wanted in ("Message", "API key", "System prompt", "Temperature", "Max tokens", "Send", "Conversation"):
        assert any(wanted in name for name in names), (wanted, named)
    check("live", "polite", page.evaluate("byId('spoken').getAttribute('aria-live')"))
    page.evaluate("byId('access').hidden = true")
    fine(page)


def hostile_texts_stay_texts(browser):
    FAKE.health["model"] = FAKE.health["ladder"]["attempts"][0]["message"] = HOSTILE
    FAKE.answer = lambda handler, _: put_events(handler, [HOSTILE[:10], HOSTILE[10:], "\n**bold** <i>not</i>"])
    page = open_fake(browser)
    said = answer_to(page, HOSTILE)
    assert HOSTILE in said and "bold <i>not</i>" in said, said
    FAKE.answer = lambda handler, _: put_problem(handler, 400, "invalid_value", HOSTILE)
    refused = answer_to(page, "again")
    assert HOSTILE in refused, refused
    check("question", HOSTILE, page.evaluate("document.querySelector('.mine .words').innerText"))
    check("model", HOSTILE, text_of(page, "model"))
    assert HOSTILE in text_of(page, "attempts")
    check("elements", [1, 0, None], page.evaluate(
        "[document.scripts.length, document.querySelectorAll('img, .words :not(p):not(strong)').length, window.hacked || null]"))
    fine(page, 400)


def the_policy_keeps_others_out(browser):
    """Should markup ever slip in: it does not run, and what is elsewhere is not loaded."""
    page = open_fake(browser)
    page.evaluate("byId('turns').innerHTML = %s" % json.dumps(HOSTILE.replace("src=x", "src=http://127.0.0.1:1/x")))
    page.evaluate("const s = document.createElement('script'); s.textContent = 'window.hacked = 3'; document.body.append(s)")
    check("elsewhere", "refused", page.evaluate("fetch('http://127.0.0.1:1/').then(() => 'asked', () => 'refused')"))
    page.frame()
    check("hacked", None, page.evaluate("window.hacked || null"))
    refusals = [c for c in page.complaints() if "Content Security Policy" in c]
    assert len(refusals) >= 3, page.complaints()


# ---- refusals -----------------------------------------------------------------------------------


def a_refusal_says_why_and_when(browser):
    page = open_fake(browser)
    FAKE.answer = lambda handler, _: put_problem(handler, 429, "queue_full", "128 requests wait already", 2)
    said = answer_to(page, "Hi")
    assert "429" in said and "128 requests wait already" in said and "in 2 s" in said, said
    check("too early", True, page.evaluate("document.querySelector('.problem button').disabled"))
    wait(page, "!document.querySelector('.problem button').disabled", "the time to try again")
    FAKE.answer = lambda handler, _: put_problem(handler, 503, "draining", "the server is about to end")
    page.evaluate("document.querySelector('.problem button').click()")
    wait(page, "answering === null && /503/.test(byId('turns').innerText)", "503")
    assert "the server is about to end" in text_of(page, "turns") and "429" not in text_of(page, "turns")
    FAKE.reset()
    page.evaluate("document.querySelector('.problem button').click()")
    wait(page, "conversation.length === 2", "an answer in the end")
    check("articles", 2, page.evaluate("document.querySelectorAll('article').length"))
    check("what was asked in the end", [{"role": "user", "content": "Hi"}], FAKE.asked[-1][1]["messages"])
    fine(page, 429, 503)


def an_answer_that_breaks_off_is_told(browser):
    page = open_fake(browser)
    FAKE.answer = lambda handler, _: put_events(handler, ["Hel"], end=False)
    said = answer_to(page, "Hi")
    assert "Hel" in said and "in the middle" in said, said
    failure = {"error": {"message": "the device was lost", "type": "t", "param": None, "code": "device"}}
    FAKE.answer = lambda handler, _: put_events(handler, ["Hel", failure], end=False)
    said = answer_to(page, "Hi")
    assert "Hel" in said and "the device was lost" in said, said
    FAKE.reset()
    answer_to(page, "Well?")
    page.evaluate("document.querySelector('.problem button').click()")
    wait(page, "answering === null && conversation.length === 6", "an answer in the end")
    check("what was said", ["Hi", "Well?", "Hi"], page.evaluate("conversation.filter(t => t.role === 'user').map(t => t.content)"))
    check("of the broken answers", 1, page.evaluate("conversation.filter(t => t.content === 'Hel').length"))
    fine(page)


def loading_failed_and_gone_are_told(browser):
    FAKE.health.update(status="loading", device=None, target_index=None, context=0)
    FAKE.health["ladder"]["attempts"] = []
    FAKE.health_status = 503
    page = open_fake(browser)
    check("status", "loading", text_of(page, "status"))
    FAKE.health.update(status="failed", failure={
        "class": "device_lost", "meaning": "it is gone", "hint": "restart", "message": "no such device"})
    wait(page, "byId('status').textContent === 'failed'", "failed")
    assert "it is gone" in text_of(page, "failure") and "restart" in text_of(page, "failure")
    FAKE.reset()
    wait(page, "byId('status').textContent === 'ready'", "ready after all")
    check("failure", True, page.evaluate("byId('failure').hidden"))
    page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    wait(page, "byId('status').textContent === 'not reachable'", "not reachable")
    assert "cannot be reached" in answer_to(page, "Hi")


def a_key_may_be_wanted_later(browser):
    page = open_fake(browser)
    FAKE.key = "secret"
    assert "401" in answer_to(page, "Hi")
    check("a field for the key", False, page.evaluate("byId('access').hidden"))
    wait(page, "byId('status').textContent === 'asks for a key' && !isAsking", "no more looks")
    before = FAKE.looks
    page.evaluate("new Promise(done => setTimeout(done, 1200))")
    check("looks without a key", before, FAKE.looks)
    page.evaluate("byId('key').value = 'secret'; byId('access').requestSubmit()")
    wait(page, "byId('access').hidden", "the key is taken")
    assert "Hello" in answer_to(page, "Hi")
    fine(page, 401)


# ---- the picture --------------------------------------------------------------------------------

# The colours of the picture's last column of pixels from the top down, and of one further left, between two dashes.
COLUMN = """(() => {
    const scale = devicePixelRatio, x = Math.round((canvas.clientWidth - 2) * scale);
    const data = context.getImageData(x, 0, 1, Math.round(PANEL * scale)).data, pixels = [];
    for (let i = 0; i < data.length; i += 4)
        pixels.push("#" + [...data.slice(i, i + 3)].map((v) => v.toString(16).padStart(2, "0")).join(""));
    return pixels;
})()"""


def rows_with(page, colour):
    """The rows of the picture in which there is a pixel near a colour, anywhere."""
    return page.evaluate("""(() => {
        const {data, width, height} = context.getImageData(0, 0, canvas.width, Math.round(PANEL * devicePixelRatio));
        const want = parseInt(colours.%s.slice(1), 16), rows = [], left = GUTTER * devicePixelRatio;
        for (let y = 0; y < height; y++)
            for (let x = left; x < width; x++) {
                const i = (y * width + x) * 4;
                const far = Math.abs(data[i] - (want >> 16)) + Math.abs(data[i + 1] - (want >> 8 & 255))
                          + Math.abs(data[i + 2] - (want & 255));
                if (data[i + 3] > 200 && far < 24) { rows.push(y); break; }
            }
        return rows;
    })()""" % colour)


def the_picture_is_what_health_says(browser):
    for scale in (1, 2):
        page = open_fake(browser, scale=scale)
        pixels = page.evaluate(COLUMN)
        colour = page.evaluate("PURPOSES")
        heights = {name: pixels.count(colour[name]) for name in colour}
        purposes = HEALTH["memory"]["devices"][0]["purposes"]
        per_byte = heights["weights"] / purposes["weights"]
        for name in colour:
            expected = purposes.get(name, 0) * per_byte
            # A line lies on a band by 1.5 pixels, edges are rounded.
            assert abs(heights[name] - expected) <= 2 * scale, (name, heights, expected)
        order = [name for i, p in enumerate(pixels) for name in colour if p == colour[name] and pixels[i - 1] != p]
        check("from the top down", ["workspace", "kv", "weights", "unaccounted"], list(dict.fromkeys(order)))
        floor = max(i for i, p in enumerate(pixels) if p == colour["unaccounted"]) + 1
        for line, mib in (("budget", 400), ("predicted", 360), ("resident", 320)):
            y = floor - mib * MIB * per_byte
            assert any(abs(row - y) <= 3 * scale for row in rows_with(page, line)), (line, y, rows_with(page, line))
        check("a device that holds nothing", 1, page.evaluate("drawn.length"))
        fine(page)


def a_far_budget_does_not_flatten_the_picture(browser):
    FAKE.health["memory"]["budget_bytes"] = FAKE.health["memory"]["devices"][0]["budget_bytes"] = 64 << 30
    FAKE.health["memory"]["devices"][1].update(bytes=100 * MIB, budget_bytes=128 * MIB, purposes={"weights": 100 * MIB})
    page = open_fake(browser)
    pixels, colour = page.evaluate(COLUMN), page.evaluate("PURPOSES")
    assert pixels.count(colour["weights"]) > 60, pixels.count(colour["weights"])
    check("devices", ["host", "sim"], page.evaluate("drawn.map(({name}) => name)"))
    check("height", True, page.evaluate("canvas.clientHeight > 2 * PANEL"))
    fine(page)


def time_passes_in_the_picture(browser):
    """Two minutes are kept; a time without samples is a gap."""
    page = open_fake(browser)
    page.evaluate("""clearTimeout(timer); samples = [];
        for (let t = 0; t < 300; t++) if (t < 230 || t > 260) addSample(makeSample(t, %s))""" % json.dumps(HEALTH))
    page.evaluate("draw()")
    first, last, count = page.evaluate("[samples[0].time, samples[samples.length - 1].time, samples.length]")
    check("kept", [176, 299], [first, last])
    check("samples", 124 - 31, count)
    drawn = page.evaluate("""[300 - 120 + 10, 245, 258, 290].map((t) => {
        const x = Math.round(xOf(t - 0.5) * devicePixelRatio), y = Math.round((drawn[0].floor - 4) * devicePixelRatio);
        return context.getImageData(x, y, 1, 1).data[3] > 0;
    })""")
    check("drawn", [True, False, False, True], drawn)
    fine(page)


def the_numbers_are_in_words(browser):
    page = open_fake(browser)
    rows = page.evaluate("[...document.querySelectorAll('#bytes tr[data-key]')].map(r => [r.dataset.key, r.cells[1].textContent])")
    check("table", [["budget", "400 MiB"], ["predicted", "360 MiB"], ["resident", "320 MiB"], ["total", "300 MiB"],
                    ["workspace", "40.0 MiB"], ["kv", "80.0 MiB"], ["weights", "160 MiB"], ["unaccounted", "20.0 MiB"]], rows)
    for id, words in (("kv", ["12 used", "8 kept", "40 in all"]), ("running", ["3", "3 of 8"]), ("waiting", ["2 of 128"]),
                      ("rate", ["41.5"]), ("device", ["cpu", "target 2 of 2"]), ("context", ["2048"]),
                      ("attempts", ["sim", "failed", "out_of_memory", "the device is full", "sim: no room", "take less"]),
                      ("brief", ["320 MiB of 400 MiB", "41.5"]), ("uptime", ["75.0 s"])):
        for word in words:
            assert word in text_of(page, id), (id, word, text_of(page, id))
    check("bar", ["30%", "20%"], page.evaluate("[...byId('kv-bar').children].map(i => i.style.width)"))
    del FAKE.health["ladder"]["attempts"][0]
    FAKE.health["memory"].update(budget_bytes=None, predicted_peak_bytes=None)
    FAKE.health["memory"]["devices"][0]["budget_bytes"] = None
    wait(page, "byId('ladder').hidden", "nothing to tell about attempts")
    check("rows", 6, page.evaluate("document.querySelectorAll('#bytes tr[data-key]').length"))
    check("texts with NaN", False, page.evaluate("/NaN|Infinity|undefined|null/.test(document.body.innerText)"))
    fine(page)


def nobody_looks_no_question(browser):
    page = open_fake(browser, before="""window.isAway = false;
        Object.defineProperty(document, "hidden", {get: () => isAway})""")
    page.evaluate("isAway = true; document.dispatchEvent(new Event('visibilitychange'))")
    wait(page, "!isAsking", "the question under way")
    before = FAKE.looks
    page.evaluate("new Promise(done => setTimeout(done, 1500))")
    check("looks while hidden", before, FAKE.looks)
    page.evaluate("isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
    wait(page, "samples.length >= 2", "a look again")
    fine(page)


# ---- what is made of an answer ------------------------------------------------------------------

RICH = """Look:

# A heading
- one
  - deeper `code`
- **two** <b>not bold</b>

1. first
2. second

```c
int main(void) { return "<script>"; }
```
> said [here](https://example.com/x) and [there](javascript:alert(1))
The end."""


def markdown_is_shown_and_stays_text(browser):
    FAKE.answer = lambda handler, _: put_events(handler, [RICH[i:i + 7] for i in range(0, len(RICH), 7)])
    page = open_fake(browser)
    answer_to(page, "Show me.")
    words = "document.querySelector('.answer .words')"
    check("elements", ["P", "H4", "UL", "OL", "DIV", "BLOCKQUOTE", "P"], page.evaluate("[...%s.children].map(e => e.tagName)" % words))
    check("code", 'int main(void) { return "<script>"; }', page.evaluate(words + ".querySelector('pre code').textContent"))
    check("language", "c", page.evaluate(words + ".querySelector('.code-head span').textContent"))
    check("deeper", "deeper code", page.evaluate(words + ".querySelector('ul ul li').textContent"))
    check("bold", ["two"], page.evaluate("[...%s.querySelectorAll('strong')].map(e => e.textContent)" % words))
    check("links", ["https://example.com/x"], page.evaluate("[...%s.querySelectorAll('a')].map(e => e.href)" % words))
    check("what would be markup", [0, 0], page.evaluate("[%s.querySelectorAll('b').length, %s.querySelectorAll('script').length]" % (words, words)))
    check("what goes to the server", RICH, page.evaluate("conversation[1].content"))
    check("copy", ["Copy", "Copy"], page.evaluate("[...document.querySelectorAll('.answer button')].map(b => b.textContent).filter(t => t === 'Copy')"))
    fine(page)


def the_last_turn_can_be_had_again_and_edited(browser):
    count = [0]
    def answer(handler, _):
        count[0] += 1
        put_events(handler, ["answer %d" % count[0]])
    FAKE.answer = answer
    page = open_fake(browser)
    answer_to(page, "One?")
    answer_to(page, "Two?")
    again = "[...document.querySelectorAll('.again')].map(b => b.textContent).sort()"
    check("buttons of the last turn only", ["Edit", "Regenerate"], page.evaluate(again))
    page.evaluate("[...document.querySelectorAll('.again')].find(b => b.textContent === 'Regenerate').click()")
    wait(page, "answering === null && conversation.length === 4", "another answer")
    check("conversation", ["One?", "answer 1", "Two?", "answer 3"], page.evaluate("conversation.map(t => t.content)"))
    check("articles", 4, page.evaluate("document.querySelectorAll('article').length"))
    page.evaluate("[...document.querySelectorAll('.again')].find(b => b.textContent === 'Edit').click()")
    check("the text to be changed", ["Two?", "text", 2, 2], page.evaluate(
        "[byId('text').value, document.activeElement.id, conversation.length, document.querySelectorAll('article').length]"))
    page.evaluate("byId('clear').click()")
    check("a new conversation", [0, 0, False], page.evaluate("[conversation.length, document.querySelectorAll('article').length, byId('opening').hidden]"))
    fine(page)


def the_memory_is_one_bar_until_it_is_opened(browser):
    page = open_page(browser, FAKE.url, is_folded=True)
    wait(page, "samples.length > 0 && byId('brief').textContent", "the first look")
    check("open", False, page.evaluate("byId('look').open"))
    low = page.evaluate("byId('look').getBoundingClientRect().height")
    check("one line", True, low < 60)
    check("chat has the width", True, page.evaluate("byId('chat').getBoundingClientRect().width === innerWidth"))
    page.evaluate("document.querySelector('#look summary').click()")
    wait(page, "byId('picture').getBoundingClientRect().height > 100", "the picture")
    check("beside the chat", True, page.evaluate("byId('look').getBoundingClientRect().left >= byId('chat').getBoundingClientRect().right - 1"))
    fine(page)


# ---- sizes and colours --------------------------------------------------------------------------


def a_phone_has_the_chat_first(browser):
    FAKE.answer = lambda handler, _: put_events(handler, ["x" * 300 + " ", "word " * 400])
    page = open_fake(browser, width=390, height=844)
    width = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    check("width", 390, page.evaluate(width))
    check("picture", False, page.evaluate("byId('look').open"))
    answer_to(page, "y" * 300)
    check("width with long words", 390, page.evaluate(width))
    check("scrolls sideways", [], page.evaluate(
        "['turns', 'chat', 'look', 'composer'].filter(id => byId(id).scrollWidth > byId(id).clientWidth)"))
    box = "byId('%s').getBoundingClientRect()"
    check("in sight", True, page.evaluate("%s.bottom <= innerHeight && %s.top >= %s.bottom - 1" % (
        box % "look", box % "look", box % "composer")))
    check("the end of the answer is in sight", True, page.evaluate(
        "(b => b.scrollHeight - b.scrollTop - b.clientHeight < 4)(byId('turns'))"))
    page.evaluate("document.querySelector('#look summary').click(); byId('settings').open = true")
    wait(page, "drawn.length > 0", "the picture")
    check("width with all open", 390, page.evaluate(width))
    check("wide parts", [], page.evaluate(
        "[...document.querySelectorAll('#chat *, #look *')].filter(e => e.getBoundingClientRect().right > 391)"
        ".map(e => e.id || e.tagName)"))
    check("text field is in sight", True, page.evaluate("%s.bottom <= innerHeight && %s.top > 0" % (box % "text", box % "text")))
    fine(page)


def contrast(a, b):
    def light(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def light_and_dark(browser):
    page = open_fake(browser)
    colours = {}
    for theme in ("light", "dark", "light"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        page.frame()
        colours[theme] = page.evaluate("draw(), {...colours}")
        for name in ("text", "quiet", "accent", "budget", "predicted", "resident"):
            ratio = contrast(colours[theme][name], colours[theme]["ground"])
            assert ratio >= 4.5, (theme, name, ratio)
        assert rows_with(page, "budget"), theme
    check("grounds", ["#ffffff", "#14181f"], [colours[t]["ground"] for t in ("light", "dark")])
    fine(page)


TESTS = [
    the_page_shows_the_real_server,
    a_story_streams,
    a_key_is_asked_for,
    a_conversation_is_sent_whole,
    stop_stops,
    keys_are_enough,
    controls_have_names,
    hostile_texts_stay_texts,
    the_policy_keeps_others_out,
    a_refusal_says_why_and_when,
    an_answer_that_breaks_off_is_told,
    loading_failed_and_gone_are_told,
    a_key_may_be_wanted_later,
    the_picture_is_what_health_says,
    a_far_budget_does_not_flatten_the_picture,
    time_passes_in_the_picture,
    the_numbers_are_in_words,
    nobody_looks_no_question,
    markdown_is_shown_and_stays_text,
    the_last_turn_can_be_had_again_and_edited,
    the_memory_is_one_bar_until_it_is_opened,
    a_phone_has_the_chat_first,
    light_and_dark,
]


def main():
    failed = 0
    with Browser() as browser:
        for test in TESTS:
            close_pages()
            FAKE.reset()
            try:
                test(browser)
                print("ok  ", test.__name__, flush=True)
            except Exception as problem:
                failed += 1
                print("FAIL", test.__name__, "-", problem, flush=True)
    sys.exit(1 if failed else 0)


FAKE = FakeServer(REAL)
main()
