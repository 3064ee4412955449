"""What a connection costs: resident memory of a server with so many connections that are open, that have asked once, and
that are open by TLS. Prints bytes for each; fails where one takes more than is planned for it.

usage: http_memory.py RATION [CONNECTIONS]
"""
import os
import re
import resource
import sys
import time

from http_client import Server, form

here = os.path.dirname(os.path.abspath(__file__))
PLANNED = {False: (12 + 1 + 1) << 10, True: (12 + 1 + 1 + 24) << 10}  # input, malloc's and our record; TLS: http_parts.h


def resident(server):
    return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{server.process.pid}/status').read())[1]) << 10


def measure(ration, count, tls):
    options = ['--connections', str(count + 10), '--per-address', '0']
    if tls:
        options += ['--tls-cert', os.path.join(here, 'http_certificate.pem'), '--tls-key', os.path.join(here, 'http_key.pem')]
    with Server(ration, *options, tls=tls) as server:
        server.ask('GET', '/metrics')
        before = resident(server)
        wires = [server.wire() for _ in range(count)]
        server.until(lambda: server.metric('ration_connections') > count)
        opened = resident(server)
        for wire in wires:
            wire.send(form('GET', '/health'))
            assert wire.answer().status == 200
        asked = resident(server)
        for wire in wires:
            wire.socket.close()
        server.until(lambda: server.metric('ration_connections') <= 2)
        time.sleep(2)  # memory is given back once a second
        print(f'{count} connections{" by TLS" if tls else ""}: {(opened - before) // count} B each when open, '
              f'{(asked - before) // count} B each after a request; '
              f'{(resident(server) - before) >> 10} KiB in all once they are closed', flush=True)
        assert (asked - before) / count < PLANNED[tls], (asked - before) / count


if __name__ == '__main__':
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(int(sys.argv[2]) if len(sys.argv) > 2 else 2000, hard - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    for tls in (False, True):
        measure(sys.argv[1], count, tls)
