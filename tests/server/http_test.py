"""HTTP as clients of all kinds speak it: every status, every bad input, none of which may harm another's request.

usage: http_test.py RATION
"""
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from http_client import LIMIT_S, Server, form

here = os.path.dirname(os.path.abspath(__file__))
STORY = {'prompt': 'Once upon a time', 'max_tokens': 12, 'temperature': 0}
LONG = {'prompt': 'Once upon a time', 'max_tokens': 280, 'logit_bias': {'0': -100}}
ASKS = ['/generate', '/v1/completions', '/v1/chat/completions']


class Bystander(threading.Thread):
    """Asks the same again and again while others misbehave, and must get the same each time."""

    def __init__(self, server):
        super().__init__()
        self.server, self.stop, self.count, self.wrong = server, False, 0, None
        self.expected = server.ask('POST', '/generate', STORY).json()['text']

    def run(self):
        try:
            while self.count == 0 or not self.stop:
                answer = self.server.ask('POST', '/generate', STORY)
                assert answer.status == 200 and answer.json()['text'] == self.expected, answer.body
                self.count += 1
        except Exception as error:  # told by the main thread
            self.wrong = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.join()
        assert not self.wrong, f'another request was harmed: {self.wrong!r}'
        assert self.count > 0


def refused(answer, status, code=None):
    assert answer.status == status, (answer.status, status, answer.body[:300])
    error = answer.error()
    assert code is None or error['code'] == code, error
    return error


# ---- answers ------------------------------------------------------------------------------------

def test_what_there_is_to_look_at(server):
    for path in ['/', '/health', '/health/live', '/health/ready', '/metrics', '/models', '/v1/models', '/plan',
                 '/openapi.json']:
        answer = server.ask('GET', path)
        assert answer.status == 200 and answer.body, path
        assert answer.headers['x-content-type-options'] == 'nosniff', path
        assert 'server' not in answer.headers and 'access-control-allow-origin' not in answer.headers, path
        head = server.ask('HEAD', path)
        assert head.status == 200 and head.body == b'', path
        assert head.headers['content-type'] == answer.headers['content-type'], path
    assert server.ask('GET', '/metrics?x=1').status == 200
    page = server.ask('GET', '/')
    assert "default-src 'none'" in page.headers['content-security-policy'], page.headers
    assert "frame-ancestors 'none'" in page.headers['content-security-policy'], page.headers


def test_models_by_name(server):
    name = server.ask('GET', '/v1/models').json()['data'][0]['id']
    assert server.ask('GET', '/v1/models/' + name.replace(' ', '%20')).json()['id'] == name
    refused(server.ask('GET', '/v1/models/another'), 404)


def test_what_is_not_there(server):
    for path in ['/nothing', '/health/', '//health', '/health/../metrics', '/%2e%2e/etc/passwd', '/v1', '*']:
        refused(server.ask('GET', path), 404, 'not_found')
    for method, path, allow in [('GET', '/generate', 'POST'), ('HEAD', '/generate', None), ('PUT', '/health', 'GET, HEAD'),
                                ('DELETE', '/v1/models/x', 'GET, HEAD'), ('OPTIONS', '/generate', 'POST'),
                                ('BREW', '/metrics', 'GET, HEAD'), ('POST', '/', 'GET, HEAD')]:
        answer = server.ask(method, path)
        assert answer.status == 405, (method, path, answer.status)
        if allow:
            refused(answer, 405, 'method_not_allowed')
            assert answer.headers['allow'] == allow


def test_an_answer_and_a_stream(server):
    for path in ASKS[:2]:
        answer = server.ask('POST', path, STORY)
        assert answer.status == 200 and answer.headers['content-type'] == 'application/json', answer.body
        assert len(answer.body) == int(answer.headers['content-length'])
        assert answer.headers['cache-control'] == 'no-store' and answer.headers['x-request-id']
        if path == '/v1/completions':
            assert answer.json()['id'] == answer.headers['x-request-id']
    answer = server.ask('POST', '/v1/completions', {**STORY, 'stream': True})
    assert answer.headers['content-type'] == 'text/event-stream' and answer.headers['x-accel-buffering'] == 'no'
    events = answer.body.decode().split('\n\n')
    assert events[-2:] == ['data: [DONE]', ''] and len(events) > 12
    text = ''.join(json.loads(e[6:])['choices'][0]['text'] for e in events[:-2])
    assert text == server.ask('POST', '/v1/completions', STORY).json()['choices'][0]['text']


def test_http_1_0(server):
    assert server.ask('GET', '/health', version='HTTP/1.0').status == 200
    with server.wire() as wire:
        wire.send(form('POST', '/v1/completions', {**STORY, 'stream': True}, version='HTTP/1.0'))
        answer = wire.answer()
        assert answer.status == 200 and 'transfer-encoding' not in answer.headers
        assert answer.body.endswith(b'data: [DONE]\n\n') and wire.ended()


def test_one_connection_many_requests(server):
    with server.wire() as wire:
        for _ in range(5):
            wire.send(form('POST', '/generate', STORY))
            assert wire.answer().status == 200
            wire.send(form('GET', '/health/live'))
            assert wire.answer().status == 200
        # What is refused with a short body does not end the connection.
        wire.send(form('POST', '/nothing', STORY))
        refused(wire.answer(), 404)
        wire.send(form('POST', '/generate', '{'))
        refused(wire.answer(), 400)
        wire.send(form('POST', '/generate', STORY, {'Connection': 'close'}))
        assert wire.answer().status == 200 and wire.ended()


def test_requests_sent_at_once_are_answered_in_order(server):
    with server.wire() as wire:
        wire.send(form('GET', '/health/live') + form('POST', '/generate', STORY) + form('GET', '/nothing') +
                  form('POST', '/v1/completions', {**STORY, 'stream': True}) + form('HEAD', '/health/live') +
                  form('GET', '/models'))
        assert wire.answer().status == 200
        assert wire.answer().json()['prompt'] == STORY['prompt']
        refused(wire.answer(), 404)
        assert wire.answer().body.endswith(b'[DONE]\n\n')
        assert wire.answer(head_only=True).status == 200
        assert 'data' in wire.answer().json()


def test_a_byte_at_a_time(server):
    with server.wire() as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in form('POST', '/generate', STORY):
            wire.send(bytes([byte]))
        assert wire.answer().status == 200


# ---- bodies -------------------------------------------------------------------------------------

def test_bad_bodies(server):
    deep = '[' * 100000
    bodies = ['', '{', 'null', '[]', '"text"', '{"prompt"}', '{"prompt": "a",}', '{"prompt": "a"} x', '{"prompt": 5}',
              '{"prompt": null}', '{"prompt": {"a": 1}}', '{"prompt": "a", "max_tokens": "5"}',
              '{"prompt": "a", "max_tokens": -1}', '{"prompt": "a", "max_tokens": 1.5}',
              '{"prompt": "a", "max_tokens": 1e400}', '{"prompt": "a", "max_tokens": 99999999999999999999999}',
              '{"prompt": "a", "temperature": NaN}', '{"prompt": "a", "temperature": Infinity}',
              '{"prompt": "a", "temperature": -1}', '{"prompt": "a", "temperature": 1e999}',
              '{"prompt": "a", "top_p": 2}', '{"prompt": "a", "stop": 5}', '{"prompt": "a", "unknown_field": [1}',
              '{"prompt": "a", "prompt": "a"}', '{"prompt": "\\ud800"}', '{"prompt": "a\x01b"}', "{'prompt': 'a'}",
              '{"prompt": ' + deep, deep + ']' * 100000, '{"prompt": "a", "stop": ' + deep + '}', '\ufeff{"prompt": "a"}',
              b'{"prompt": "\xff\xfe"}', b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\xc0\x80"}', b'\x00' * 1000,
              b'{"prompt": "a\x00b"}', os.urandom(5000)]
    # Each path's own words in the place of the prompt, so that nothing but the fault is wrong.
    members = {'/v1/chat/completions': '"messages": [{"role": "user", "content": "a"}]', '/tokenize': '"text": "a"',
               '/detokenize': '"tokens": [1]'}
    for path in ASKS + ['/tokenize', '/detokenize']:
        member = members.get(path, '"prompt": "a"')
        more = ', "max_tokens": 2' if path in ASKS else ''
        assert server.ask('POST', path, '{' + member + more + '}').status == 200, path
        for body in bodies:
            if isinstance(body, str):
                body = body.replace('"prompt": "a"', member)
            answer = server.ask('POST', path, body)
            assert answer.status == 400, (path, body[:100], answer.status, answer.body)
            assert answer.error()['type'] == 'invalid_request_error'
        for field, value in [('top_p', '2'), ('temperature', '-1'), ('max_tokens', '1.5'), ('stop', '5'), ('nobody', '1')]:
            if (field == 'nobody') != (path in ASKS):
                answer = server.ask('POST', path, '{%s, "%s": %s}' % (member, field, value))
                assert answer.status == 400 and answer.error()['param'] == field, (path, field, answer.body)


def test_a_conversation(server):
    body = {'messages': [{'role': 'user', 'content': 'Once upon a time'}], 'max_tokens': 8, 'temperature': 0}
    whole = server.ask('POST', '/v1/chat/completions', body).json()['choices'][0]['message']
    assert whole['role'] == 'assistant' and whole['content'], whole
    answer = server.ask('POST', '/v1/chat/completions', {**body, 'stream': True, 'stream_options': {'include_usage': True}})
    events = [line[6:] for line in answer.body.decode().split('\n\n') if line]
    assert answer.status == 200 and events.pop() == '[DONE]'
    events = [json.loads(event) for event in events]
    assert ''.join(c['delta'].get('content', '') for e in events for c in e['choices']) == whole['content']
    assert events[-1]['choices'] == [] and events[-1]['usage']['completion_tokens'] == 8


def test_what_other_servers_know(server):
    """Another model's name, fields that nobody knows, more tokens than there are: answered, by what is here."""
    chat = {'model': 'another', 'messages': [{'role': 'user', 'content': 'x', 'reasoning': {'a': [1]}}], 'max_tokens': 2}
    assert server.ask('POST', '/v1/chat/completions', chat).json()['model'] == 'default'
    plain = server.ask('POST', '/v1/completions', {**STORY, 'max_tokens': 10**6, 'temperature': 0, 'truncate': {'x': [[]]}}).json()
    assert plain['usage']['completion_tokens'] > 2, plain


def test_types_of_bodies(server):
    for kind in ['text/html', 'application/jsonx', 'multipart/form-data; boundary=x']:
        refused(server.ask('POST', '/generate', STORY, {'Content-Type': kind}), 415)
    for kind in [None, ';', 'text/plain', 'application/x-www-form-urlencoded', 'application/json', 'Application/JSON; charset=utf-8', 'application/json ;x=y']:
        assert server.ask('POST', '/generate', STORY, {'Content-Type': kind}).status == 200, kind


def test_pages_of_other_sites(server):
    other = {'Origin': 'https://other.example', 'Sec-Fetch-Site': 'cross-site', 'Content-Type': None}
    refused(server.ask('POST', '/generate', STORY, other), 403, 'cross_origin')
    refused(server.ask('POST', '/generate', STORY, {**other, 'Sec-Fetch-Site': 'same-site'}), 403, 'cross_origin')
    refused(server.ask('POST', '/generate', STORY, {**other, 'Sec-Fetch-Site': None}), 403, 'cross_origin')
    for kind in ('text/plain', 'application/x-www-form-urlencoded'):
        headers = {**other, 'Sec-Fetch-Site': None, 'Content-Type': kind}
        refused(server.ask('POST', '/generate', STORY, headers), 403, 'cross_origin')
    for site in ('same-origin', 'none'):
        assert server.ask('POST', '/generate', STORY, {**other, 'Sec-Fetch-Site': site}).status == 200


def test_names_of_this_machine(server):
    """A page whose own name points to this machine is no other site to a browser."""
    for name in ('other.example', 'other.example:8000', '127.0.0.1.other.example', 'localhost.', 'a' * 300, '[other.example]',
                 'localhost.other.example:80', '.', 'box', 'box.local', 'host.docker.internal:1', 'localhost.local', '::1', '[::1'):
        for method, path, body in (('GET', '/plan', None), ('POST', '/generate', STORY)):
            refused(server.ask(method, path, body, {'Host': name}), 403, 'foreign_host')
    for name in ('localhost', 'LocalHost:8000', 'a.localhost', '127.0.0.1:8000', '[::1]:8000', '[::1]', '192.0.2.7', ''):
        assert server.ask('GET', '/health/live', headers={'Host': name}).status == 200, name
    refused(server.ask('GET', '/health', headers={'Host': None}), 400, 'bad_request')
    assert server.ask('GET', '/health', headers={'Host': None}, version='HTTP/1.0').status == 200


def chunked(body, size):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b''.join(b'%x\r\n%s\r\n' % (len(part), part) for part in parts) + b'0\r\n\r\n'


def test_chunked_bodies(server):
    head = form('POST', '/generate', headers={'Transfer-Encoding': 'chunked', 'Content-Type': 'application/json'})
    body = json.dumps(STORY).encode()
    for size in (1, 7, 1000):
        assert server.raw(head + chunked(body, size)).status == 200
    with server.wire() as wire:
        wire.send(head + chunked(b'x' * 3000000, 50000) + form('GET', '/health/live'))
        refused(wire.answer(), 413, 'body_too_large')
        assert wire.answer().status == 200
    for broken in [b'zz\r\n', b'-5\r\nabcde\r\n', b'5\r\nabcdefg\r\n0\r\n\r\n', b'ffffffffffffffffff\r\n', b'5 5\r\nabcde\r\n']:
        with server.wire() as wire:
            wire.send(head + broken)
            wire.socket.shutdown(socket.SHUT_WR)
            try:
                assert wire.answer().status in (400, 413), broken
            except (EOFError, ConnectionResetError):
                pass  # cut off: as good
            assert wire.ended()


def test_bodies_that_are_too_long(server):
    # By their length, before they are sent.
    for length in (1048577, 100 << 20, 1 << 40, (1 << 64) - 1):
        with server.wire() as wire:
            wire.send(form('POST', '/generate', headers={'Content-Length': length}))
            refused(wire.answer(), 413, 'body_too_large')
            assert wire.ended()
    # And so many bytes really sent: whoever does not look up is cut off.
    with server.wire() as wire:
        wire.send(form('POST', '/generate', headers={'Content-Length': 100 << 20}))
        try:
            for _ in range(100):
                wire.send(b'x' * (1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            pass
        refused(wire.answer(), 413)
    error = refused(server.ask('POST', '/generate', {**STORY, 'prompt': 'a' * 10000000}), 413)
    assert '1048576' in error['message']


def test_the_longest_body_that_is_taken(server):
    text = json.dumps({**STORY, 'prompt': ''})
    body = json.dumps({**STORY, 'prompt': 'a ' * ((1048576 - len(text)) // 2)})
    error = refused(server.ask('POST', '/generate', body), 400)
    assert any(c.isdigit() for c in error['message']), error  # the numbers


def test_expect_continue(server):
    body = json.dumps(STORY)
    headers = {'Expect': '100-continue', 'Content-Length': len(body), 'Content-Type': 'application/json'}
    with server.wire() as wire:
        wire.send(form('POST', '/generate', headers=headers))
        status, _ = wire.head()
        assert status == 100
        wire.send(body)
        assert wire.answer().status == 200
    for changed, status in [({'Content-Length': 5 << 20}, 413), ({'Content-Type': 'text/html'}, 415)]:
        with server.wire() as wire:
            wire.send(form('POST', '/generate', headers={**headers, **changed}))
            answer = wire.answer()
            assert answer.status == status and not answer.interim
            assert wire.ended()


# ---- more than one request in one ---------------------------------------------------------------

def test_requests_smuggled_in_one(server):
    hidden = b'GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n'
    start = b'POST /generate HTTP/1.1\r\nHost: localhost\r\n'
    heads = [b'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', b'Transfer-Encoding: chunked\r\nContent-Length: 5\r\n',
             b'Content-Length: 0\r\nContent-Length: %d\r\n' % len(hidden), b'Content-Length: 5\r\nContent-Length: 5\r\n',
             b'Content-Length: 5, 5\r\n', b'Content-Length: +5\r\n', b'Content-Length: -5\r\n', b'Content-Length: 0x5\r\n',
             b'Content-Length: 5 5\r\n', b'Content-Length:\r\n', b'Content-Length: 99999999999999999999999\r\n',
             b'Content-Length : 5\r\n', b'Transfer-Encoding : chunked\r\n', b'Transfer-Encoding: xchunked\r\n',
             b'Transfer-Encoding: chunked, identity\r\n', b'Transfer-Encoding: identity\r\n',
             b'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n',
             b'Transfer-Encoding:\x0bchunked\r\n', b'Transfer-Encoding: chunked\x00\r\nX: y\r\n',
             b'X: a\nContent-Length: 5\r\n', b'X: a\rContent-Length: 5\r\n', b'X: a\r\n Content-Length: 5\r\n',
             b'Content-Len: 5\r\n gth\r\n', b'Content-Length: 1\r\n 0\r\n', b' Content-Length: 5\r\n', b'X\r\n',
             b': x\r\n', b'X Y: z\r\n', b'Host: y\r\n']
    for head in heads:
        with server.wire() as wire:
            wire.send(start + head + b'\r\n' + b'0\r\n\r\n' + hidden)
            statuses = re.findall(rb'HTTP/1.1 (\d+)', wire.everything())
            assert len(statuses) == 1 and set(statuses) <= {b'400', b'413', b'501'}, (head, statuses)


def test_lines_that_are_no_requests(server):
    for data in [b'\x00' * 100 + b'\r\n\r\n', b'GET\r\n\r\n', b'nonsense\r\n\r\n', b'GET / HTTP/9.9\r\nHost: localhost\r\n\r\n',
                 b'GET / HTTP/1.1\r\n\r\n', b'GET  / x HTTP/1.1\r\nHost: localhost\r\n\r\n', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc',
                 b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', b'GET /' + b'a' * 20000 + b' HTTP/1.1\r\n\r\n',
                 b'GET / HTTP/1.1\r\nHost: localhost\r\nX: ' + b'a' * 20000 + b'\r\n\r\n',
                 b'GET / HTTP/1.1\r\nHost: localhost\r\n' + b'X: y\r\n' * 5000 + b'\r\n']:
        with server.wire() as wire:
            try:
                wire.send(data)
                wire.socket.shutdown(socket.SHUT_WR)
                said = wire.everything()
            except OSError:
                said = b''
            statuses = [int(status) for status in re.findall(rb'HTTP/1\.[01] (\d{3})', said)]
            assert all(400 <= status <= 505 for status in statuses), (data[:40], statuses)  # none: cut off, as good
    answer = server.ask('GET', '/health', headers={'X': 'a' * 9000})
    assert answer.status == 431, answer.status


# ---- those who go away --------------------------------------------------------------------------

def test_half_closed_is_not_gone(server):
    for body in (STORY, {**STORY, 'stream': True}):
        with server.wire() as wire:
            wire.send(form('POST', '/v1/completions', {**body, 'max_tokens': 100}))
            wire.socket.shutdown(socket.SHUT_WR)
            answer = wire.answer()
            assert answer.status == 200 and len(answer.body) > 300, answer.body


def idle(server):
    """Nobody's request is under way, but perhaps the bystander's."""
    return server.metric('ration_requests_running') + server.metric('ration_requests_waiting') <= 1


def test_who_hangs_up_is_cancelled(server):
    for body in (LONG, {**LONG, 'stream': True}):
        server.until(lambda: idle(server))
        before = server.metric('ration_requests_cancelled_total')
        wires = [server.wire() for _ in range(12)]
        for wire in wires:
            wire.send(form('POST', '/v1/completions', {**body, 'n': 1}))
        server.until(lambda: not idle(server))
        for wire in wires:
            wire.socket.close()
        server.until(lambda: idle(server))
        assert server.metric('ration_requests_cancelled_total') > before
    server.until(lambda: server.metric('ration_connections') <= 2)


def test_who_hangs_up_while_sending(server):
    for part in (form('POST', '/generate', headers={'Content-Length': 1000}) + b'{"prompt"', b'POST /gen', b''):
        for _ in range(20):
            with server.wire() as wire:
                wire.send(part)
    server.until(lambda: server.metric('ration_connections') <= 2)


# ---- other servers ------------------------------------------------------------------------------

def check_slow_clients(ration):
    with Server(ration, '--idle-timeout', '10', '--parallel', '4') as server:
        with Bystander(server):
            send_slowly(server)
        # Whoever asks for a lot and does not read it is cut off, too.
        with server.wire() as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(form('POST', '/v1/completions', {**LONG, 'stream': True, 'logprobs': 5, 'n': 2}))
            assert wire.head()[0] == 200
            server.until(lambda: server.metric('ration_connections') == 1)
            assert b'[DONE]' not in wire.everything()
        assert idle(server)


def send_slowly(server):
    waits = []
    for data in (b'', b'GET /hea', form('POST', '/generate', headers={'Content-Length': 100}) + b'{'):
        wire = server.wire()
        wire.send(data)
        waits.append(wire)
    # A byte now and then keeps nobody here for ever.
    trickle = server.wire()
    try:
        while True:
            trickle.send(b'X')
            time.sleep(0.2)
    except (BrokenPipeError, ConnectionResetError):
        pass
    for wire in waits:
        said = wire.everything()
        assert not said or b' 408 ' in said, said


def check_few_connections(ration):
    """Those who say nothing make room for those who ask; those who are being answered do not."""
    with Server(ration, '--connections', '4', '--per-address', '0', '--parallel', '8') as server:
        wires = [server.wire() for _ in range(4)]
        for _ in range(3):
            assert server.ask('GET', '/health').status == 200
        busy = [server.wire() for _ in range(4)]
        for wire in busy:
            wire.send(form('POST', '/v1/completions', {**LONG, 'stream': True}))
            assert wire.head()[0] == 200
        answer = server.ask('GET', '/health')
        refused(answer, 503, 'too_many_connections')
        assert answer.headers['retry-after'] and answer.headers['connection'] == 'close'
        assert server.ask('GET', '/health/live').status == 200
        for wire in wires + busy:
            wire.socket.close()
        server.until(lambda: server.ask('GET', '/health').status == 200)


def check_answers_that_nobody_reads(ration):
    """They lie in the system's memory, which is planned for so many only."""
    with Server(ration, '--waiting', '22', '--connections', '300', '--per-address', '0') as server:
        wires = []
        for _ in range(200):
            wires.append(server.wire())
            wires[-1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            wires[-1].send(form('GET', '/openapi.json'))  # more than buffers hold
        server.until(lambda: server.ask('GET', '/metrics').status == 429)
        heads = [wire.head() for wire in wires]
        statuses = [status for status, _ in heads]
        assert statuses.count(200) == 150 and statuses.count(429) == 50, statuses
        wires[0].take(int(heads[0][1]['content-length']))
        server.until(lambda: server.ask('GET', '/metrics').status == 200)


def check_room(ration):
    """Bodies that are on their way take the room; who comes then is told to come again."""
    with Server(ration, '--max-body', '512KiB', '--request-memory', '8MiB', '--max-tokens', '16') as server:
        before = server.metric('ration_requests_refused_total', '{code="429"}')
        body = json.dumps({**STORY, 'prompt': 'a ' * 250000}).encode()
        wires = [server.wire() for _ in range(8)]
        for wire in wires:
            wire.send(form('POST', '/generate', headers={'Content-Length': len(body)}) + body[:-1])
        # All of them have been read as far as they go, or refused.
        server.until(lambda: server.metric('ration_requests_refused_total', '{code="429"}') >= before + 4)
        statuses = []
        for wire in wires:
            wire.send(body[-1:])
            answer = wire.answer()
            statuses.append(answer.status)
            if answer.status == 429:
                assert int(answer.headers['retry-after']) > 0
        assert statuses.count(429) >= 4 and set(statuses) <= {400, 429}, statuses
        assert server.metric('ration_requests_refused_total', '{code="429"}') == before + statuses.count(429)
        answer = server.ask('POST', '/generate', STORY)
        assert answer.status == 200, answer.body


def check_long_prompts(ration):
    with Server(ration, '--max-body', '16MiB', '--request-memory', '128MiB') as server, Bystander(server):
        error = refused(server.ask('POST', '/generate', {**STORY, 'prompt': 'a' * 10000000}), 400)
        assert any(c.isdigit() for c in error['message']), error


def check_keys_and_origins(ration):
    with Server(ration, '--api-key', 'alpha', '--api-key', 'beta', '--cors', 'https://page.example') as server:
        for path in ('/health/live', '/health/ready', '/'):
            assert server.ask('GET', path).status == 200, path
        for path in ('/health', '/metrics', '/v1/models', '/plan', '/profile'):
            for key in (None, '', 'Bearer', 'Bearer gamma', 'Bearer alph', 'Bearer alphabet', 'Basic alpha', 'alpha'):
                answer = server.ask('GET', path, headers={'Authorization': key})
                refused(answer, 401, 'invalid_api_key')
                assert answer.headers['www-authenticate'] == 'Bearer'
        refused(server.ask('POST', '/generate', STORY), 401)
        refused(server.ask('GET', '/nothing'), 404)
        for key in ('alpha', 'beta'):
            answer = server.ask('POST', '/generate', STORY, {'Authorization': 'Bearer ' + key})
            assert answer.status == 200, (answer.status, answer.body)
            assert answer.headers['access-control-allow-origin'] == 'https://page.example', answer.headers
            assert answer.headers['vary'] == 'Origin'
        before = server.ask('OPTIONS', '/v1/completions', headers={
            'Origin': 'https://page.example', 'Access-Control-Request-Method': 'POST'})
        assert before.status == 204 and 'POST' in before.headers['access-control-allow-methods']
        assert before.headers['access-control-allow-headers'] == 'Authorization, Content-Type, *'  # openai's has some of its own
        assert server.ask('GET', '/health', headers={'Host': 'a.example', 'Authorization': 'Bearer beta'}).status == 200
        refused(server.ask('OPTIONS', '/nothing'), 404)
        for origin, status in (('https://page.example', 200), ('https://other.example', 403)):
            answer = server.ask('POST', '/generate', STORY, {
                'Authorization': 'Bearer beta', 'Origin': origin, 'Sec-Fetch-Site': 'cross-site'})
            assert answer.status == status, (origin, answer.body)


def check_tls(ration):
    files = ['--tls-cert', os.path.join(here, 'http_certificate.pem'), '--tls-key', os.path.join(here, 'http_key.pem')]
    with Server(ration, *files, tls=True) as server:
        assert server.ask('POST', '/generate', STORY).status == 200
        assert server.ask('POST', '/v1/completions', {**STORY, 'stream': True}).body.endswith(b'[DONE]\n\n')
        test_one_connection_many_requests(server)
        test_who_hangs_up_is_cancelled(server)
        # Plain HTTP to it, or half a handshake.
        for data in (b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n', b'\x16\x03\x01', b'\x16\x03\x01\x40\x00' + b'x' * 100):
            with socket.create_connection(server.address) as plain:
                plain.sendall(data)
        assert server.ask('GET', '/health/live').status == 200


def refuses(server):
    try:
        server.wire().socket.close()
    except ConnectionRefusedError:
        return True
    return False


def check_the_end(ration):
    """What runs is ended within the time given, the rest is cut off; nobody new is let in."""
    for drain, whole in (('3600', True), ('0', False)):
        with Server(ration, '--parallel', '2', '--drain', drain) as server:
            wires = [server.wire() for _ in range(6)]
            for i, wire in enumerate(wires):
                wire.send(form('POST', '/v1/completions', {**LONG, 'max_tokens': 80 if whole else 250, 'stream': i % 2 == 0}))
            server.until(lambda: not idle(server))
            server.process.terminate()
            server.until(lambda: 'asked to stop' in open(server.log.name).read())
            server.until(lambda: refuses(server))
            cut = 0
            for wire in wires:
                try:
                    answer = wire.answer()
                    cut += answer.status != 200 or b'"error"' in answer.body
                    assert answer.status == 200 or (answer.status == 503 and not whole), answer.body
                    assert wire.ended()
                except (EOFError, ConnectionResetError):
                    cut += 1
            assert (cut == 0) == whole, cut
            assert server.process.wait(LIMIT_S) == 0


def check_a_second_signal(ration):
    """The first one waits for all that is owed; the second for nothing."""
    with Server(ration, '--drain', '3600', '--parallel', '1') as server:
        wires = [server.wire() for _ in range(20)]
        for wire in wires:
            wire.send(form('POST', '/v1/completions', {**LONG, 'max_tokens': 250}))
        server.until(lambda: not idle(server))
        server.process.terminate()
        server.until(lambda: 'asked to stop' in open(server.log.name).read())
        server.process.terminate()
        server.code = -signal.SIGTERM
        server.process.wait(LIMIT_S)


def check_an_answer_that_is_made_arrives(ration):
    with Server(ration, '--drain', '3600') as server, server.wire() as wire, server.wire() as sender:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(form('POST', '/v1/completions', {**LONG, 'max_tokens': 150, 'logprobs': 5, 'n': 4}))
        sender.send(form('POST', '/generate', headers={'Content-Length': 100}) + b'{')  # is owed nothing
        server.until(lambda: server.metric('ration_generated_tokens_total') > 300)
        server.until(lambda: server.metric('ration_requests_running') == 0)
        server.process.terminate()
        time.sleep(2.5)
        assert len(wire.answer().json()['choices']) == 4
        assert server.process.wait(LIMIT_S) == 0


def run_tests(ration, template):
    with Server(ration, '--parallel', '8', '--template', template) as server:
        with Bystander(server):
            for name, test in list(globals().items()):
                if name.startswith('test_'):
                    start = time.time()
                    test(server)
                    print(f'{name} {time.time() - start:.2f} s', flush=True)
        server.until(lambda: idle(server))


def run_checks(ration):
    """Each has a server of its own, and most of them wait for it: a few at a time."""
    def run(name):
        start = time.time()
        globals()[name](ration)
        print(f'{name} {time.time() - start:.2f} s', flush=True)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run, name) for name in globals() if name.startswith('check_')]:
            done.result()


def main(ration):
    with tempfile.NamedTemporaryFile('w', suffix='.jinja') as template:
        template.write('{% for m in messages %}{{ m.content }}{% endfor %}')
        template.flush()
        run_tests(ration, template.name)
    run_checks(ration)


if __name__ == '__main__':
    main(sys.argv[1])
