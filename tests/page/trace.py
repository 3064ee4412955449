"""trace.py - writes a trace file from Python, so that a test knows exactly what is in it.

The format is that of src/profile/trace.h: blocks at multiples of 64 bytes, each with checksums.
"""
import json
import struct

PURPOSES = ["weights", "kv", "activations", "gradients", "optimizer", "workspace", "staging", "io",
            "profiler", "unaccounted", "other"]
ALLOC, FREE, BEGIN, FINISH, SPAN, MARK, COUNTER, MOVE = range(1, 9)
STAGE, CHECKPOINT, PERIODIC, REFUSAL = range(4)
RESIDENT, BUDGET, PREDICTED, PREDICTED_PEAK = range(1, 5)
INNER = 1


def _make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
        table.append(byte)
    return table


_TABLE = _make_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Trace:
    """Lanes are numbers from 1. Events of a lane are added in the order of time."""

    def __init__(self, command=""):
        self.command = command
        self.names, self.lanes, self.devices, self.events = {}, {}, ["host"], {}

    def name(self, text, group="", detail=""):
        return self.names.setdefault((text, group, detail), len(self.names) + 1)

    def lane(self, name, is_queue=False):
        number = len(self.lanes) + 1
        self.lanes[number] = (name, is_queue)
        return number

    def device(self, name):
        self.devices.append(name)
        return len(self.devices) - 1

    def event(self, lane, time, kind, address=0, size=0, name=0, device=0, purpose=0, flags=0):
        self.events.setdefault(lane, []).append(struct.pack(
            "<QQQIBBBB", time, address, size, name, kind, device, purpose, flags))

    def alloc(self, lane, time, address, size, purpose, name=0, device=0, flags=0):
        self.event(lane, time, ALLOC, address, size, name, device, PURPOSES.index(purpose), flags)

    def free(self, lane, time, address, size, purpose, device=0, flags=0):
        self.event(lane, time, FREE, address, size, 0, device, PURPOSES.index(purpose), flags)

    def operation(self, lane, begin, end, name):
        self.event(lane, begin, BEGIN, name=name)
        self.event(lane, end, FINISH)

    def counter(self, lane, time, kind, value, device=0):
        self.event(lane, time, COUNTER, size=value, purpose=kind, device=device)

    def write(self, path):
        blocks = [(1, 0, 0, self._preamble()), (4, 1, 0, self._devices()), (3, 1, 0, self._lanes()),
                  (2, 1, 0, self._names())]
        for lane, events in self.events.items():
            for i in range(0, len(events), 32768):
                blocks.append((6, 1, lane, b"".join(events[i:i + 32768])))
        count = sum(map(len, self.events.values()))
        blocks.append((7, 2, 0, json.dumps({"reason": "stopped", "events": count, "dropped": 0}).encode()))
        with open(path, "wb") as file:
            for sequence, (kind, number, lane, payload) in enumerate(blocks):
                file.write(self._block(kind, sequence, number, lane, payload))

    def _block(self, kind, sequence, number, lane, payload):
        def header(own):
            return struct.pack("<8sIIIIQQIIQQ", b"\x89RNTRC\r\n", own, crc32c(payload), kind, len(payload),
                               sequence, number, lane, 1, 0, 0)
        return header(crc32c(header(0))) + payload + bytes(-len(payload) % 64)

    def _preamble(self):
        return json.dumps({
            "format": "ration trace", "version": 1, "event_bytes": 32, "purposes": PURPOSES,
            "mode": "spill", "limit_bytes": 1 << 30, "snapshot_seconds": 5,
            "start_unix_ns": 1700000000000000000, "pid": 1, "command": self.command}).encode()

    def _text(self, text):
        data = text.encode()
        return struct.pack("<I", len(data)) + data

    def _devices(self):
        return b"".join(struct.pack("<I", i) + self._text(name) for i, name in enumerate(self.devices))

    def _lanes(self):
        return b"".join(struct.pack("<II", number, is_queue) + self._text(name)
                        for number, (name, is_queue) in self.lanes.items())

    def _names(self):
        return b"".join(struct.pack("<I", number) + b"".join(map(self._text, texts))
                        for texts, number in self.names.items())
