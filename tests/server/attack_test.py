"""What hostile or careless clients do to a server: connections that say nothing, requests without a body, heads that libraries
read differently, questions about other people's prompts. Bounded in time and number; the loopback only.

usage: attack_test.py RATION [NAME...]
"""
import json
import re
import resource
import socket
import sys
import time

from http_client import Server, Wire, form

STORY = {'prompt': 'Once upon a time', 'max_tokens': 4, 'temperature': 0}
LONG = {'prompt': 'Once upon a time', 'max_tokens': 280, 'logit_bias': {'0': -100}, 'stream': True}


def key(name):
    return {'Authorization': 'Bearer ' + name}


def refused(answer, status, code=None):
    assert answer.status == status, (answer.status, status, answer.body[:300])
    error = answer.error()
    assert code is None or error['code'] == code, error


class Neighbour(Wire):
    """A connection from another address."""

    def __init__(self, server, number):
        self.socket = socket.create_connection(server.address, timeout=60, source_address=(f'127.0.0.{number}', 0))
        self.rest = b''


# ---- connections --------------------------------------------------------------------------------

def check_silent_connections(ration):
    """However many say nothing, those who ask are answered, and probes always."""
    count = 600
    for options in ([], ['--per-address', '0']):
        with Server(ration, '--connections', '200', *options) as server:
            silent = []
            for _ in range(count):
                silent.append(server.wire(timeout=20))
                if len(silent) % 3 == 0:
                    silent[-1].send(b'GET /health/live HT')
            for _ in range(5):
                assert server.ask('GET', '/health/live').status == 200
                assert server.ask('GET', '/health').status == 200
                assert server.ask('POST', '/generate', STORY).status == 200
                silent.append(server.wire(timeout=20))
            assert server.metric('ration_connections') <= 240
            # One that has asked is as good as any.
            with server.wire() as wire:
                for _ in range(3):
                    wire.send(form('GET', '/health'))
                    assert wire.answer().status == 200


def check_bodies_that_never_come(ration):
    """Who has no key is told so at the head, and keeps nobody out who has one; neither does one key another."""
    with Server(ration, '--api-key', 'alpha', '--api-key', 'beta', '--per-address', '0') as server:
        def promise(headers):
            wires = [server.wire(timeout=20) for _ in range(300)]
            for wire in wires:
                wire.send(form('POST', '/generate', headers={'Content-Length': 100, 'Content-Type': 'application/json', **headers}))
            return wires

        strangers = promise({})
        for wire in strangers:
            answer = wire.answer()
            refused(answer, 401, 'invalid_api_key')
        others = promise(key('beta'))
        answer = server.ask('POST', '/generate', STORY, key('alpha'))
        assert answer.status == 200, answer.body
        # What was promised may still come: the connection goes on behind it.
        strangers[0].send(b'x' * 100 + form('POST', '/generate', STORY, key('alpha')))
        assert strangers[0].answer().status == 200
        body = json.dumps({**STORY, 'max_tokens': 1}).encode()
        others[0].send(body + b' ' * (100 - len(body)))
        assert others[0].answer().status == 200


def check_pages_that_nobody_reads(ration):
    """What is open to all takes a small share of what can be under way."""
    with Server(ration, '--api-key', 'alpha', '--per-address', '0') as server:
        wires = [server.wire(timeout=20) for _ in range(400)]
        for wire in wires:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            wire.send(form('GET', '/') + form('GET', '/page.js') + form('GET', '/page.css'))
        for wire in wires:
            assert wire.head()[0] in (200, 429)
        for _ in range(3):
            assert server.ask('POST', '/generate', STORY, key('alpha')).status == 200
            assert server.ask('GET', '/health/ready').status == 200


def check_one_address(ration):
    """One address has its share, and the others theirs."""
    with Server(ration, '--per-address', '4', '--parallel', '8') as server:
        busy = [server.wire() for _ in range(4)]
        for wire in busy:
            wire.send(form('POST', '/v1/completions', LONG))
            assert wire.head()[0] == 200
        answer = server.ask('GET', '/health')
        refused(answer, 429, 'too_many_connections')
        assert answer.headers['retry-after']
        assert server.ask('GET', '/health/live').status == 200
        with Neighbour(server, 2) as wire:
            wire.send(form('POST', '/generate', STORY))
            assert wire.answer().status == 200
        for wire in busy:
            wire.socket.close()
        server.until(lambda: server.ask('GET', '/health').status == 200)


# ---- heads --------------------------------------------------------------------------------------

def check_targets(ration):
    with Server(ration) as server:
        many = '&'.join(f'name{i}=value{i}' for i in range(200))
        assert server.ask('GET', '/health?' + many).status == 200
        assert server.ask('GET', '/health?' + '&' * 3000).status == 200
        refused(server.ask('GET', '/health?' + 'a' * 5000), 414)
        refused(server.ask('GET', '/' + 'a' * 7000), 414)
        refused(server.ask('GET', '/health', headers={f'X-{i}': i for i in range(100)}), 431)
        for path in ('/health%00', '/health%00.html', '/%', '/%4', '/%zz', '/health?a=%00', '/health?%0d%0aX:%20y', '/a%0ab',
                     'health', '/he\xe4lth', '%2fhealth'):
            refused(server.ask('GET', path), 400, 'bad_request')
        assert server.ask('GET', '/he%61lth').status == 200
        assert server.ask('GET', 'http://localhost:1/health').status == 200
        refused(server.ask('GET', 'http://other.example/health'), 403, 'foreign_host')
        refused(server.ask('GET', '/profile?a=b&format=%63sv'), 404, 'no_recording')  # decoded: there is such a form
        refused(server.ask('GET', '/profile?format=csv%26'), 400)
        refused(server.ask('GET', '/health', version='HTTP/2.0'), 505)


def check_lengths(ration):
    """One answer to each, in our own form, and the connection ends."""
    with Server(ration) as server:
        for length in ('abc', '-1', '+1', '1 1', '0x10', '1,1', '', '18446744073709551616', '9' * 30, '\u0661', '1.0', '1e1'):
            with server.wire() as wire:
                wire.send(f'POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\nGET / HTTP/1.1\r\n\r\n')
                said = wire.everything()
                heads = re.findall(rb'HTTP/1\.1 (\d+)', said)
                assert len(heads) == 1 and heads[0] in (b'400', b'413'), (length, heads)
                assert b'<html' not in said and json.loads(said.split(b'\r\n\r\n')[1])['error'], said


def check_media(ration):
    with Server(ration) as server:
        for headers in ({'Content-Encoding': 'gzip'}, {'Content-Encoding': 'identity, br'}, {'Content-Type': 'application/json; charset=latin1'},
                        {'Content-Type': 'application/json;charset="utf-16"'}, {'Content-Type': 'application/json; x=y; CHARSET = "iso-8859-1"'}):
            refused(server.ask('POST', '/generate', STORY, headers), 415, 'unsupported_media_type')
        for headers in ({'Content-Encoding': 'identity'}, {'Content-Type': 'application/json; charset="UTF-8"'},
                        {'Content-Type': 'application/json; charset=us-ascii'}):
            assert server.ask('POST', '/generate', STORY, headers).status == 200, headers


def check_chunk_lines(ration):
    """Lines end with CR LF; a proxy that thinks otherwise must not smuggle anything past us."""
    head = form('POST', '/generate', headers={'Transfer-Encoding': 'chunked', 'Content-Type': 'application/json'})
    body = json.dumps(STORY).encode()
    size = b'%x' % len(body)
    with Server(ration) as server:
        for good in (size + b'\r\n' + body + b'\r\n0\r\n\r\n', b'0' * 20 + size + b';a="b;c"\r\n' + body + b'\r\n0;x\r\nTrailer: y\r\n\r\n',
                     size.upper() + b'\r\n' + body + b'\r\n000\r\n\r\n'):
            with server.wire() as wire:
                wire.send(head + good + form('GET', '/health/live'))
                assert wire.answer().status == 200, good
                assert wire.answer().status == 200
        for bad in (size + b'\n' + body + b'\r\n0\r\n\r\n', size + b'\r\n' + body + b'\n0\r\n\r\n', size + b'\r\n' + body + b'\r\n0\n\r\n',
                    size + b'\r\n' + body + b'\r\n0\r\n\n', size + b'\r\n' + body + b'\r\n0\r\nX: y\n\r\n', b' ' + size + b'\r\n' + body,
                    size + b' \r\n' + body, b'0x' + size + b'\r\n' + body, size + b'\r\r\n' + body, size + b';\x00\r\n' + body,
                    b'\r\n' + size + b'\r\n' + body, b'1' * 17 + b'\r\n', size + b'\r\n' + body + b'x\r\n0\r\n\r\n',
                    size + b';' + b'a' * 5000 + b'\r\n', size + b'\r\n' + body + b'\r\n0\r\n' + b'X: y\r\n' * 2000):
            with server.wire() as wire:
                wire.send(head + bad + form('GET', '/smuggled'))
                statuses = re.findall(rb'HTTP/1\.1 (\d+)', wire.everything())
                assert statuses == [b'400'], (bad[:60], statuses)


def check_names(ration):
    """A page whose name somebody's network resolves to this machine may not ask; only names that the user gave may."""
    with Server(ration, '--host-name', 'box.local', '--host-name', 'Lab') as server:
        for name in ('printer.local', 'host.docker.internal', 'box', 'router', 'metadata.google.internal', 'xbox.local', 'a.lab'):
            refused(server.ask('GET', '/plan', headers={'Host': name}), 403, 'foreign_host')
        for name in ('box.local', 'BOX.local:8000', 'lab', 'localhost', '127.0.0.1', '[::1]:80'):
            assert server.ask('GET', '/plan', headers={'Host': name}).status == 200, name


# ---- other people's prompts ---------------------------------------------------------------------


def cached(server, name, prompt):
    answer = server.ask('POST', '/v1/completions', {**STORY, 'prompt': prompt}, key(name))
    assert answer.status == 200, answer.body
    return answer.json()['usage']['prompt_tokens_details']['cached_tokens']


def check_prefixes_by_key(ration):
    """Whether somebody else has sent a text cannot be asked."""
    prompt = 'There was a little girl who had a secret that nobody knew. ' * 8
    for cache, own, other in (('key', True, False), ('all', True, True), ('off', False, False), (None, True, False)):
        options = ['--prefix-cache', cache] if cache else []
        with Server(ration, '--api-key', 'alpha', '--api-key', 'beta', '--kv-page', '16', *options) as server:
            assert cached(server, 'alpha', prompt) == 0
            assert (cached(server, 'beta', prompt) > 0) == other, cache
            assert (cached(server, 'alpha', prompt) > 0) == own, cache


def main(ration, names):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    for name, check in list(globals().items()):
        if name.startswith('check_') and (not names or name in names):
            start = time.time()
            check(ration)
            print(f'{name} {time.time() - start:.2f} s', flush=True)


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2:])
