"""torch_snapshot_export.py SNAPSHOT.pickle — is it a pickle that PyTorch's viewers open?
Opcodes and structure need Python only; torch.cuda._memory_viz is tried where torch is installed."""
import pickle
import pickletools
import sys

# What MemoryViz.js reads.
OPCODES = {'PROTO', 'EMPTY_DICT', 'EMPTY_LIST', 'EMPTY_TUPLE', 'MARK', 'APPEND', 'APPENDS', 'SETITEM', 'SETITEMS',
           'TUPLE', 'TUPLE1', 'TUPLE2', 'TUPLE3', 'BININT', 'BININT1', 'BININT2', 'LONG1', 'BINUNICODE',
           'SHORT_BINUNICODE', 'BINFLOAT', 'NEWTRUE', 'NEWFALSE', 'NONE', 'BINPUT', 'LONG_BINPUT', 'MEMOIZE', 'BINGET',
           'LONG_BINGET', 'FRAME', 'STOP'}
ACTIONS = {'alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'oom', 'snapshot'}


def check_opcodes(data):
    marks, items = [], 0
    for opcode, argument, _ in pickletools.genops(data):
        assert opcode.name in OPCODES, f'{opcode.name} is not read by the viewer'
        assert opcode.name != 'PROTO' or 2 <= argument <= 4
        assert opcode.name != 'LONG1' or -2**63 <= argument < 2**63
        if opcode.name == 'MARK':
            marks.append(items)
            items = 0
        elif opcode.name in ('APPENDS', 'SETITEMS'):
            assert items <= 2000, 'a batch is too large'
            items = marks.pop()
        elif opcode.name not in ('MEMOIZE', 'STOP', 'PROTO', 'FRAME'):
            items += 1 if opcode.name != 'TUPLE2' else -1
    assert not marks


def check_frames(frames):
    for frame in frames:
        assert set(frame) == {'filename', 'line', 'name'}, frame
        assert isinstance(frame['name'], str) and isinstance(frame['filename'], str)


def check_segments(snapshot):
    for s in snapshot['segments']:
        assert 0 <= s['device'] < len(snapshot['device_traces'])
        assert s['segment_pool_id'] == (0, 0) and s['segment_type'] in ('small', 'large')
        assert s['total_size'] == sum(b['size'] for b in s['blocks']), 'blocks do not fill their segment'
        active = sum(b['size'] for b in s['blocks'] if b['state'] == 'active_allocated')
        assert s['allocated_size'] == s['active_size'] == active
        at = s['address']
        for b in s['blocks']:
            assert b['address'] == at, 'blocks do not follow each other'
            at += b['size']
            check_frames(b['frames'])


def check_trace(trace):
    """Replays a device as the viewer does: every block lies in a segment that is there. Returns what is left."""
    segments, blocks, last = {}, {}, 0
    for e in trace:
        assert e['action'] in ACTIONS and e['stream'] == 0 and e['category'] and e['time_us'] >= last
        last = e['time_us']
        check_frames(e['frames'])
        if e['action'] == 'segment_alloc':
            assert e['addr'] not in segments, 'a segment is there already'
            segments[e['addr']] = e['size']
        elif e['action'] == 'segment_free':
            assert segments.pop(e['addr']) == e['size']
        elif e['action'] == 'alloc':
            assert e['addr'] not in blocks, 'a block is there already'
            assert any(a <= e['addr'] and e['addr'] + e['size'] <= a + n for a, n in segments.items()), 'in no segment'
            blocks[e['addr']] = e['size']
        elif e['action'] == 'free_completed':
            assert blocks.pop(e['addr']) == e['size']
    return segments, blocks


def check_structure(snapshot):
    check_segments(snapshot)
    for device, trace in enumerate(snapshot['device_traces']):
        segments, blocks = check_trace(trace)
        mine = [s for s in snapshot['segments'] if s['device'] == device]
        assert segments == {s['address']: s['total_size'] for s in mine}, 'segments at the end'
        left = {b['address']: b['size'] for s in mine for b in s['blocks'] if b['state'] == 'active_allocated'}
        assert blocks == left, 'blocks at the end'
        assert not trace or trace[-1]['category'] == 'unknown'


def check_viewer(path):
    try:
        from torch.cuda import _memory_viz as viz
    except ImportError:
        print('skipped: no torch')
        return
    def load():
        with open(path, 'rb') as f:
            return pickle.load(f)
    assert 'add_local_files' in viz.trace_plot(load())
    assert 'add_local_files' in viz.trace_plot(load(), plot_segments=True)
    assert 'add_local_files' in viz.segment_plot(load())
    assert 'total_reserved' in viz.segsum(load())
    viz.trace(load())
    lines = viz.memory(load(), format_flamegraph=lambda text: text)
    assert lines.count('\n') >= sum(len(s['blocks']) for s in load()['segments'])
    print('torch.cuda._memory_viz takes it')


def main(path):
    with open(path, 'rb') as f:
        data = f.read()
    check_opcodes(data)
    snapshot = pickle.loads(data)
    check_structure(snapshot)
    check_viewer(path)
    print(f'{sum(map(len, snapshot["device_traces"]))} entries, {len(snapshot["segments"])} segments')


main(sys.argv[1])
