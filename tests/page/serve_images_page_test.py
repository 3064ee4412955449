"""serve_images_page_test.py URL - the page of a server of pictures, in a browser."""
import sys
import time

from browser import Browser

URL = sys.argv[1]


def wait(page, expression, what, seconds=600):
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise AssertionError("%s: not within %d s; the page says: %s" % (
                what, seconds, page.evaluate("document.body.innerText")[-600:]))
        time.sleep(0.02)


with Browser() as browser:
    page = browser.open(URL)
    page.evaluate("byId('look').open = true")
    wait(page, "isDrawing && samples.length > 0", "a page that draws")
    assert page.evaluate("byId('send').textContent") == "Draw"
    assert page.evaluate("byId('text-fields').hidden && !byId('image-fields').hidden")
    # The memory is beside it: its picture has the server's weights.
    wait(page, "drawn.length > 0", "the picture of the memory")
    page.evaluate("byId('seed').value = 5; byId('steps').value = 6; byId('size').value = '64x64'; byId('pictures').value = 2;"
                  "byId('text').value = 'a red circle'; send(); 0")
    wait(page, "answering === null", "an end of the drawing")
    assert page.evaluate("document.querySelectorAll('img.drawn').length") == 2
    wait(page, "[...document.querySelectorAll('img.drawn')].every((i) => i.complete && i.naturalWidth === 64)", "pictures of 64x64")
    said = page.evaluate("document.querySelector('.picture .facts').textContent")
    assert said.startswith("seed 5, 6"), said
    assert page.evaluate("document.querySelector('.picture a').download") == "5.png"
    assert page.evaluate("document.querySelectorAll('progress').length") == 0
    # A refusal is told, and can be tried again.
    page.evaluate("byId('size').value = '65x64'; byId('text').value = 'a circle'; send(); 0")
    wait(page, "document.querySelector('.problem[role=alert]') !== null", "a refusal")
    assert "multiples" in page.evaluate("document.querySelector('.problem[role=alert]').textContent")
    # A long one is stopped.
    page.evaluate("byId('size').value = '256x256'; byId('steps').value = 900; byId('text').value = 'a circle'; send(); 0")
    wait(page, "document.querySelector('progress') && document.querySelector('progress').value > 0", "a first step")
    page.evaluate("stop(); 0")
    wait(page, "answering === null", "an end by stopping")
    assert page.evaluate("[...document.querySelectorAll('.picture .facts')].pop().textContent") == "stopped"
    others = [c for c in page.complaints() if not c.startswith("request: " + URL + "/") and "status of 400" not in c]
    assert not others, others
print("ok")
