"""What hostile or careless clients do to a server: connections that say nothing, requests without a body, heads that libraries
read differently, questions about other people's prompts. Bounded in time and number; the loopback only.

usage: attack_test.py RATION [NAME...]
"""
import sys
import time

from http_client import Server, form

STORY = {'prompt': 'Once upon a time', 'max_tokens': 4, 'temperature': 0}


def cached(server, key, prompt):
    answer = server.ask('POST', '/v1/completions', {**STORY, 'prompt': prompt}, {'Authorization': 'Bearer ' + key})
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
    for name, check in list(globals().items()):
        if name.startswith('check_') and (not names or name in names):
            start = time.time()
            check(ration)
            print(f'{name} {time.time() - start:.2f} s', flush=True)


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2:])
