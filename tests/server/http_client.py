"""A server under test, and HTTP by hand: what is sent is exactly what is written, and what comes back is taken apart."""
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time

LIMIT_S = 600  # for what never comes: a slow machine is no failure


class Answer:
    def __init__(self, status, headers, body, interim):
        self.status, self.headers, self.body, self.interim = status, headers, body, interim

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error of a problem, whose form is checked."""
        error = self.json()['error']
        assert set(error) == {'message', 'type', 'param', 'code'}, error
        assert self.headers['content-type'] == 'application/json', self.headers
        return error


class Wire:
    """One connection."""

    def __init__(self, address, context=None, timeout=LIMIT_S):
        self.socket = socket.create_connection(address, timeout=timeout)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname='localhost')
        self.rest = b''

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def more(self):
        data = self.socket.recv(65536)
        self.rest += data
        return bool(data)

    def line(self):
        while b'\r\n' not in self.rest:
            if not self.more():
                raise EOFError(self.rest)
        line, self.rest = self.rest.split(b'\r\n', 1)
        return line.decode('latin-1')

    def take(self, count):
        while len(self.rest) < count:
            if not self.more():
                raise EOFError(f'{len(self.rest)} of {count} bytes')
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def chunks(self):
        body = b''
        while count := int(self.line(), 16):
            body += self.take(count)
            assert self.take(2) == b'\r\n'
        assert self.line() == ''
        return body

    def head(self):
        match = re.fullmatch(r'HTTP/1\.[01] (\d{3}) ?.*', self.line())
        assert match
        headers = {}
        while line := self.line():
            name, value = line.split(':', 1)
            headers[name.lower()] = value.strip()
        return int(match[1]), headers

    def answer(self, head_only=False):
        interim = []
        status, headers = self.head()
        while status < 200:
            interim.append(status)
            status, headers = self.head()
        if head_only or status == 204:
            body = b''
        elif headers.get('transfer-encoding') == 'chunked':
            body = self.chunks()
        elif 'content-length' in headers:
            body = self.take(int(headers['content-length']))
        else:
            while self.more():
                pass
            body, self.rest = self.rest, b''
        return Answer(status, headers, body, interim)

    def everything(self):
        """All that comes until the other side closes."""
        try:
            while self.more():
                pass
        except (ConnectionResetError, ssl.SSLError):
            pass
        return self.rest

    def ended(self):
        """Whether nothing more comes, and the other side has closed."""
        try:
            return not self.rest and not self.more()
        except (ConnectionResetError, ssl.SSLError):
            return True


def form(method, path, body=None, headers=None, version='HTTP/1.1'):
    """The bytes of a request."""
    headers = dict(headers or {})
    lines = [f'{method} {path} {version}']
    if not any(name.lower() == 'host' for name in headers):
        lines.append('Host: localhost')
    if body is not None:
        body = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers.setdefault('Content-Type', 'application/json')
        headers.setdefault('Content-Length', len(body))
    lines += [f'{name}: {value}' for name, value in headers.items() if value is not None]
    return '\r\n'.join(lines).encode() + b'\r\n\r\n' + (body or b'')


class Server:
    """`ration serve` with these options on a free port."""

    def __init__(self, ration, *options, tls=False, environment=None):
        self.code = 0  # that it is to end with
        self.log = tempfile.NamedTemporaryFile(mode='w+', suffix='.log')
        self.context = None
        if tls:
            self.context = ssl.create_default_context()
            self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.process = subprocess.Popen([ration, 'serve', '--port', '0', '--json', '--drain', '1', *options], stdout=subprocess.DEVNULL,
                                        stderr=self.log, env={**os.environ, **(environment or {})})
        self.address = ('127.0.0.1', self.find_port())

    def find_port(self):
        while self.process.poll() is None:
            match = re.search(r'listening on https?://[^ "]*:(\d+)', open(self.log.name).read())
            if match:
                return int(match[1])
            time.sleep(0.05)
        raise AssertionError('no server: ' + open(self.log.name).read()[-2000:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError('the server does not end: ' + open(self.log.name).read()[-2000:])
        assert self.process.returncode == self.code, (self.process.returncode, open(self.log.name).read()[-4000:])

    def wire(self, timeout=LIMIT_S):
        return Wire(self.address, self.context, timeout)

    def ask(self, method, path, body=None, headers=None, version='HTTP/1.1'):
        with self.wire() as wire:
            try:
                wire.send(form(method, path, body, headers, version))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the answer was there before all was sent
            return wire.answer(head_only=method == 'HEAD')

    def raw(self, data):
        with self.wire() as wire:
            wire.send(data)
            return wire.answer()

    def metric(self, name, labels=''):
        text = self.ask('GET', '/metrics').body.decode()
        match = re.search(rf'^{re.escape(name + labels)} ([0-9.e+]+)$', text, re.M)
        assert match, f'{name}{labels} is not in:\n{text}'
        return float(match[1])

    def until(self, what, seconds=LIMIT_S):
        """Waits until `what()` is true."""
        end = time.time() + seconds
        while not (found := what()):
            assert time.time() < end, 'it does not come true'
            time.sleep(0.05)
        return found
