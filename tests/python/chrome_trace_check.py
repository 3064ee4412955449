"""chrome_trace_check.py TRACE.json — holds a Chrome trace against chrome_trace_schema.json, and what a schema cannot say:
slices nest on their lane, every row that begins ends, counters have all their series. Standard library only."""
import json
import os
import sys
from decimal import Decimal

TYPES = {'object': dict, 'array': list, 'string': str, 'integer': int, 'number': (int, Decimal)}


def errors(value, schema, path='$'):
    """What is wrong with `value`, by the words of JSON Schema that the file uses."""
    if 'anyOf' in schema:
        tries = [list(errors(value, s, path)) for s in schema['anyOf']]
        if all(tries):
            yield min(tries, key=len)[0]
        return
    if 'type' in schema and (not isinstance(value, TYPES[schema['type']]) or isinstance(value, bool)):
        yield f'{path}: not of type {schema["type"]}'
        return
    if 'enum' in schema and value not in schema['enum']:
        yield f'{path}: {value!r} is none of {schema["enum"]}'
    if 'minimum' in schema and value < schema['minimum']:
        yield f'{path}: {value} is too small'
    if len(value) < schema.get('minLength', 0) if isinstance(value, str) else False:
        yield f'{path}: too short'
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from errors(item, schema.get('items', {}), f'{path}[{i}]')
    if isinstance(value, dict):
        yield from object_errors(value, schema, path)


def object_errors(value, schema, path):
    known = schema.get('properties', {})
    more = schema.get('additionalProperties', {})
    for key in schema.get('required', []):
        if key not in value:
            yield f'{path}: no {key}'
    if len(value) < schema.get('minProperties', 0):
        yield f'{path}: too few keys'
    for key, item in value.items():
        if key not in known and more is False:
            yield f'{path}: {key} is not known'
        else:
            yield from errors(item, known.get(key, more or {}), f'{path}.{key}')


def check_nesting(events):
    """Slices of a lane, outer first where they begin together, lie within each other or apart."""
    open_ends = {}
    for e in sorted((e for e in events if e['ph'] == 'X'), key=lambda e: (e['ts'], -e['dur'])):
        ends = open_ends.setdefault(e['tid'], [])
        while ends and ends[-1] <= e['ts']:
            ends.pop()
        end = e['ts'] + e['dur']
        assert not ends or end <= ends[-1], f'{e["name"]} at {e["ts"]} does not nest'
        ends.append(end)


def check_rows(events):
    begun = {}
    for e in events:
        if e['ph'] == 'b':
            assert e['id'] not in begun, f'row {e["id"]} begins twice'
            begun[e['id']] = e
        elif e['ph'] == 'e':
            begin = begun.pop(e['id'])
            assert begin['name'] == e['name'] and begin['ts'] <= e['ts'], f'row {e["id"]}'
    assert not begun, f'{len(begun)} rows do not end'


def check_counters(events):
    series, last = {}, {}
    for e in (e for e in events if e['ph'] == 'C'):
        assert series.setdefault(e['name'], list(e['args'])) == list(e['args']), f'series of {e["name"]} change'
        assert last.get(e['name'], Decimal(-1)) <= e['ts'], f'{e["name"]} goes back in time'
        last[e['name']] = e['ts']


def main(path):
    with open(path, encoding='utf-8') as f:
        trace = json.load(f, parse_float=Decimal)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'chrome_trace_schema.json'), encoding='utf-8') as f:
        schema = json.load(f)
    wrong = list(errors(trace, schema))
    assert not wrong, wrong[:5]
    events = trace['traceEvents']
    tids = {e['tid'] for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}
    assert all(e['tid'] in tids for e in events if 'tid' in e), 'a lane without a name'
    check_nesting(events)
    check_rows(events)
    check_counters(events)
    print(f'{len(events)} events: ' + ', '.join(f'{sum(e["ph"] == p for e in events)} {p}' for p in 'MXCibe'))


main(sys.argv[1])
