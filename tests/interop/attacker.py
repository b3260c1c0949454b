"""attacker.py - links of peers that say what no daemon would say.

    with Attacker(port, run_id, seed=1) as a:
        a.say("GET_VIEW", [True])          # any message, by name
        a.press(1000)                      # so many of any kind
        a.heard["HEARTBEAT"]               # the last one that came, or None

It shakes hands, says HELLO and a HEARTBEAT, and keeps what it hears, so that
what it makes up names the real run, view, round and members. With the key of
a member it is that member (Attacker(.., identity=..)).
"""
import random
import socket
import threading

import peer
from messages import MESSAGES, Maker

NAMES = {number: name for name, (number, _) in MESSAGES.items()}
# What opens the door; an attacker that spoils these is only let go of.
POLITE = ("HELLO", "ADMISSION", "REFUSED", "CLAIM", "PRESENT")


class Attacker:
    def __init__(self, port, run_id, seed, identity=None, seconds=20):
        self.port, self.run_id, self.seconds = port, run_id, seconds
        self.rng = random.Random(seed)
        self.maker = Maker(self.rng, identity)
        self.maker.learn("run", ("bin", 32), run_id)
        self.life = self.rng.getrandbits(63) | 1
        self.heard = {}
        self.n_heard = {}
        self.n_said = 0
        self.link = self.reader = None

    def __enter__(self):
        self.dial()
        return self

    def __exit__(self, *what):
        self.hang_up()

    def dial(self, reads=True):
        """A new link; the old one is gone."""
        self.hang_up()
        self.link = peer.dial(self.port, self.maker.identity, self.run_id,
                              self.seconds, 0 if reads else 4096).initiate()
        if reads:
            self.reader = threading.Thread(target=self.read, args=(self.link,),
                                           daemon=True)
            self.reader.start()
        self.say("HELLO", [self.life, [bytes(10) + b"\xff\xff\x7f\0\0\1", 0],
                           0, peer.VERSION, peer.VERSION])

    def hang_up(self):
        if self.link is not None:
            try:  # the thread that reads ends now, not with the next pulse
                self.link.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed by the other side
            self.link.sock.close()
            if self.reader is not None:
                self.reader.join(self.seconds)
            self.link = self.reader = None

    def read(self, link):
        try:
            while True:
                number, values = link.recv_frame()
                name = NAMES.get(number)
                if name is not None:
                    self.heard[name] = values
                    self.n_heard[name] = self.n_heard.get(name, 0) + 1
                    self.maker.hear(MESSAGES[name][1], values)
        except Exception:  # pylint: disable=broad-except
            pass  # closed, by either side

    def say(self, name, values, times=1):
        self.n_said += times
        self.link.send_frame(MESSAGES[name][0], values, times)

    def press(self, n, names=None):
        """n messages, of any kind or of these; the link is opened again
        whenever the other side has closed it. Returns how often it was."""
        names = names or [x for x in MESSAGES if x not in POLITE]
        closed = 0
        for _ in range(n):
            name = self.rng.choice(names)
            number, values = self.maker.message(name)
            try:
                self.link.send_frame(number, values)
                self.n_said += 1
            except OSError:
                closed += 1
                self.dial()
        return closed
