#!/usr/bin/env python3
"""What the gate's scripts cost: instructions per command inside redis-server, counted by callgrind.

Counts repeat to about two percent whatever else the machine does, so they can be held to a goal; times cannot. (Seen in repeated runs: sold
out 7.41 to 7.58 times GET, release 12.81 to 13.06.) So a figure may be over its goal by that much. Every figure stands beside
GET and beside the seed's script, both run on the same server in the same run. The scripts are the crate's own files.

usage: ir_gate.py [--commands N] [--buyers N] [--only TEXT] [--report FILE]
    --commands   commands counted for each case (default 400)
    --buyers     earlier buyers already in the book (default 1000)
    --only       just the cases whose name contains this, beside GET
    --report     also write the figures there, as JSON
Exits 1 when a figure is over its goal by more than the noise, 2 when a tool is missing or an answer is not the one the case is about.
"""
import argparse
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LUA = os.path.join(HERE, '..', '..', '..', 'shared', 'sale', 'src', 'gate', 'lua')
SCRIPTS = {name: os.path.join(LUA, name + '.lua') for name in ('admit', 'confirm', 'release', 'sell', 'take')}
SCRIPTS['seed'] = os.path.join(HERE, '..', 'seeds', 'buy.lua')

BOOK, PENDING = 'seckill:book:{a1:s10}', 'seckill:pending:{a1:s10}'
PAST, FUTURE = 1_700_000_000_000, 9_000_000_000_000
TERMS = json.dumps({'title': 'Hotcake, 12 pieces, boxed', 'price': 129900, 'currency': 'CNY', 'limitPerUser': 1, 'payWindowSecs': 900},
                   separators=(',', ':'))
WARM_UP = 200
# by how much two runs of the same code differ
NOISE = 0.02
PIPELINE = 500


def order(i):
    return f'SK{i:026d}'


def request(i, quantity=1):
    return f'0123456789abcdef|{quantity}|{100_000_000 + i}|'


def hold(i, state='H', quantity=1):
    return f'{state}1780000000{request(i, quantity)}'


def user(i):
    return f'u:{100_000_000 + i}'


def book(available=10_000_000, starts=PAST, ends=FUTURE, limit=1, user_ms=0, device_ms=0):
    gate = f'{starts} {ends} {limit} {user_ms} {device_ms}'
    return [('HSET', BOOK, 'gate', gate, 'terms', TERMS, 'total', str(max(available, 10_000_000)), 'avail', str(available), 'sold', '0',
             'epoch', '1', 'version', '1'),
            ('ZADD', PENDING, '+inf', '-' * 65)]


def held(i, pending=True, mark=''):
    rows = [('HSET', BOOK, order(i), hold(i), user(i), '1' + mark)]
    return rows + [('ZADD', PENDING, '1780000000', order(i))] if pending else rows


def admit(i, quantity=1):
    return ('EVALSHA', 'admit', '2', BOOK, PENDING, order(i), user(i), request(i, quantity), f'd:device-{i:08d}|203.0.113.{i % 250}')


def follow(script, *arguments):
    return ('EVALSHA', script, '2', BOOK, PENDING, *arguments)


def seed(i, stock='st'):
    return ('EVALSHA', 'seed', '3', stock, f'b:{i}', f'c:{i}', '1')


def each(make):
    """Set-up that is needed once for every command."""
    return lambda numbers: [command for i in numbers for command in make(i)]


def many(script, first, n=50):
    return follow(script, *(order(first * n + k) for k in range(n)))


NOTHING = each(lambda i: [])
# name, what the answer holds, goal as a multiple of GET (None: reported only), set-up, set-up per command, command, orders per command
CASES = [
    ('GET', '12345', None, [('SET', 'g', '12345')], NOTHING, lambda i: ('GET', 'g'), 1),
    ('seed: sold out', 'STOCK_EMPTY', None, [('SET', 'st', '0')], NOTHING, seed, 1),
    ('seed: bought', 'ALREADY_BOUGHT', None, [('SET', 'st', '9999')], each(lambda i: [('SET', f'b:{i}', '1')]), seed, 1),
    ('seed: ok', 'OK', None, [('SET', 'st', '99999999')], NOTHING, seed, 1),
    ('admit: sold out', 'STOCK_EMPTY', 7.5, book(available=0), NOTHING, admit, 1),
    ('admit: limit', 'ALREADY_BOUGHT', 8.5, book(), each(lambda i: [('HSET', BOOK, user(i), '1')]), admit, 1),
    # 8.5 for the bare word; the terms, which a retry needs when its row never came to be, are one more HGET.
    ('admit: replay', 'REPLAYED', 9.5, book(), each(held), admit, 1),
    ('admit: not started', 'NOT_STARTED', 10.5, book(starts=FUTURE - 1), NOTHING, admit, 1),
    ('admit: rate limited', 'RATE_LIMITED', None, book(limit=3, user_ms=4_000_000_000), each(lambda i: [('HSET', BOOK, user(i), f'1 {int(time.time() * 1000)}')]), admit, 1),
    ('admit: admitted', '{', 15, book(), NOTHING, admit, 1),
    ('admit: admitted, user rate', '{', 17, book(user_ms=1_000), NOTHING, admit, 1),
    ('admit: admitted, user and device rate', '{', 20, book(user_ms=1_000, device_ms=5_000), NOTHING, admit, 1),
    ('release', 'CHANGED', 13, book(), each(held), lambda i: follow('release', order(i)), 1),
    ('sell', 'CHANGED', 10.5, book(), each(lambda i: held(i, pending=False)), lambda i: follow('sell', order(i)), 1),
    ('confirm', 'OK', 6, book(), each(held), lambda i: follow('confirm', order(i)), 1),
    ('take', 'CHANGED', None, book(), NOTHING, lambda i: follow('take', order(i), user(i), hold(i)[1:]), 1),
    ('release, 50 at once, each', 'CHANGED', None, book(), each(lambda i: [c for k in range(50) for c in held(i * 50 + k)]), lambda i: many('release', i), 50),
    ('confirm, 50 at once, each', 'OK', None, book(), each(lambda i: [c for k in range(50) for c in held(i * 50 + k)]), lambda i: many('confirm', i), 50),
]


class Server:
    """A redis-server under callgrind, on a free port, ended with the `with` block."""

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix='ir-gate-')
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        self.out = os.path.join(self.home, 'callgrind')
        self.process = subprocess.Popen(
            ['valgrind', '--tool=callgrind', f'--callgrind-out-file={self.out}', 'redis-server', '--port', str(port), '--bind', '127.0.0.1',
             '--save', '', '--appendonly', 'no', '--hz', '1', '--dynamic-hz', 'no', '--activerehashing', 'no'],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.home)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(('127.0.0.1', port), timeout=60)
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.process.kill()
                    raise SystemExit('redis-server did not start under valgrind')
                time.sleep(.1)
        self.file = self.socket.makefile('rb')
        self.sha = {}
        for name, path in SCRIPTS.items():
            with open(path, encoding='utf-8') as text:
                self.sha[name] = self.run(('SCRIPT', 'LOAD', text.read()))
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def send(self, command):
        if command[0] == 'EVALSHA':
            command = ('EVALSHA', self.sha[command[1]], *command[2:])
        parts = [word.encode() for word in command]
        self.socket.sendall(b'*%d\r\n' % len(parts) + b''.join(b'$%d\r\n%s\r\n' % (len(p), p) for p in parts))

    def answer(self):
        line = self.file.readline().decode().rstrip('\r\n')
        kind, rest = line[:1], line[1:]
        if kind == '-':
            raise SystemExit(f'the server refused: {rest}')
        if kind == '$':
            return self.file.read(int(rest) + 2)[:-2].decode() if int(rest) >= 0 else None
        if kind == '*':
            return [self.answer() for _ in range(int(rest))]
        return rest

    def run(self, command):
        self.send(command)
        return self.answer()

    def run_all(self, commands):
        for start in range(0, len(commands), PIPELINE):
            for command in commands[start:start + PIPELINE]:
                self.send(command)
            for _ in commands[start:start + PIPELINE]:
                self.answer()

    def dump(self):
        """Instructions since the last dump. (`callgrind_control -z` leaves some of what came before in the count.)"""
        known = set(glob.glob(self.out + '*'))
        subprocess.run(['callgrind_control', '-d', str(self.process.pid)],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        for _ in range(600):
            for path in set(glob.glob(self.out + '*')) - known:
                with open(path, encoding='utf-8') as text:
                    total = re.search(r'^totals: (\d+)', text.read(), re.M)
                if total:
                    return int(total[1])
            time.sleep(.05)
        raise SystemExit('callgrind wrote no dump')

    def instructions(self, commands):
        self.dump()
        answers = [self.run(command) for command in commands]
        return self.dump(), answers


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--commands', type=int, default=400)
    options.add_argument('--buyers', type=int, default=1_000)
    options.add_argument('--only', default='')
    options.add_argument('--report')
    options = options.parse_args()
    for tool in ('valgrind', 'callgrind_control', 'redis-server'):
        if not shutil.which(tool):
            print(f'{tool} is missing', file=sys.stderr)
            return 2

    figures, base, over = [], None, False
    print(f'{"":40} {"k Ir":>7} {"x GET":>6} {"goal":>5}, + {NOISE:.0%}')
    with Server() as server:
        for name, expected, goal, setup, setup_each, command, per_command in CASES:
            if name != 'GET' and options.only not in name:
                continue
            # All figures stand beside GET: it is counted ten times as long.
            count = max(options.commands * (10 if base is None else 1) // per_command, 8)
            warm, counted = range(WARM_UP // per_command), range(10_000, 10_000 + count)
            server.run(('FLUSHALL',))
            server.run_all(setup + setup_each([*warm, *counted]))
            if setup and setup[0][1] == BOOK:
                server.run_all([c for i in range(5_000_000, 5_000_000 + options.buyers) for c in held(i, pending=False)])
                # A table that grew moves its entries bit by bit, at every look-up; let it finish.
                server.run_all([('HMGET', BOOK, *['none'] * 1_000)] * (options.buyers // 500))
            server.run_all([command(i) for i in warm])
            total, answers = server.instructions([command(i) for i in counted])
            wrong = [a for a in answers if not (a[1] if isinstance(a, list) else a).startswith(expected)]
            if wrong:
                print(f'{name}: expected {expected}, got {wrong[0]}', file=sys.stderr)
                return 2
            instructions = total / count / per_command
            base = base or instructions
            ratio = instructions / base
            missed = goal is not None and ratio > goal * (1 + NOISE)
            over |= missed
            figures.append({'case': name, 'instructions': round(instructions), 'timesGet': round(ratio, 2), 'goal': goal})
            print(f'{name:40} {instructions / 1000:7.1f} {ratio:6.2f} {goal or "":>5}{"  OVER" if missed else ""}', flush=True)
    if options.report:
        with open(options.report, 'w', encoding='utf-8') as file:
            json.dump(figures, file, indent=2)
    return 1 if over else 0


if __name__ == '__main__':
    sys.exit(main())
