"""peer.py - a peer of the loco protocol that shares no line with loco.

Written from proto/PROTOCOL.md alone, over implementations that we did not
write: PyPI `noiseprotocol` for the handshake, `cryptography` for Ed25519,
`msgpack` for messages, hashlib for BLAKE2b. It can do what a stranger must be
able to do: shake hands in both roles, exchange control frames, prove who is
at the other end. It is no member of anything and never trains.

The numbers of sections below are those of PROTOCOL.md.
"""
import hashlib
import os
import re
import socket
import struct

import msgpack
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey, Ed25519PublicKey)
from noise.connection import Keypair, NoiseConnection

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
with open(os.path.join(ROOT, "proto", "PROTOCOL.md"), encoding="utf-8") as page:
    PAGE = page.read()
PROSE = " ".join(PAGE.split())  # a sentence may go over lines
VERSION = int(re.search(r"The version of this protocol is (\d+)",
                        PROSE).group(1))
PROLOGUE = int(re.search(r"u16 (\d+) \|\| 32 bytes run id",
                         PROSE).group(1))
PROTOCOL = b"Noise_XX_25519_ChaChaPoly_BLAKE2b"
INITIATOR, RESPONDER = b"loco-hello-initiator-1", b"loco-hello-responder-1"
CONTROL, BULK = 1, 2
HELLO, GET_MANIFEST, MANIFEST, REFUSED = 0x01, 0x08, 0x09, 0x0d
PING, PONG = 0x20, 0x21


def blake2b(data):
    return hashlib.blake2b(data, digest_size=32).digest()


def hash_in(domain, data):
    """Section 3: a hash with a domain."""
    return blake2b(domain + b"\0" + data)


class Identity:
    """Section 2, and the signatures of section 4."""

    def __init__(self, seed=None):
        self.key = Ed25519PrivateKey.from_private_bytes(seed or os.urandom(32))
        self.public = self.key.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.id = blake2b(self.public)

    def sign(self, domain, data):
        return self.key.sign(hash_in(domain, data))


def verify(public, domain, data, signature):
    """Raises InvalidSignature."""
    Ed25519PublicKey.from_public_bytes(public).verify(
        signature, hash_in(domain, data))


class Connection:
    """One TCP connection of section 11: handshake, then frames."""

    def __init__(self, sock, identity, run_id, prologue=PROLOGUE):
        self.sock = sock
        self.identity = identity
        self.noise = NoiseConnection.from_name(PROTOCOL)
        self.noise.set_prologue(b"loco" + struct.pack("<H", prologue) + run_id)
        self.noise.set_keypair_from_private_bytes(Keypair.STATIC,
                                                  os.urandom(32))
        self.remote_public = None
        self.remote_port = None
        self.plain = b""  # decrypted, not yet a whole frame

    # ---- records ----------------------------------------------------------

    def send_record(self, data):
        self.sock.sendall(struct.pack("<I", len(data)) + bytes(data))

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise ConnectionError("closed by the other side")
            data += more
        return data

    def recv_record(self):
        return self.exactly(struct.unpack("<I", self.exactly(4))[0])

    # ---- handshake --------------------------------------------------------

    def watch_payload_hash(self, make_hello):
        """The hello signs the handshake hash just before it is mixed in, which
        NoiseConnection does not show: the last call that mixes bytes in is the
        payload's, and `h` is read there. A payload of None becomes the hello."""
        state = self.noise.noise_protocol.handshake_state.symmetric_state
        encrypt, decrypt = state.encrypt_and_hash, state.decrypt_and_hash

        def encrypt_and_hash(plain):
            return encrypt(make_hello(state.h) if plain is None else plain)

        def decrypt_and_hash(sealed):
            self.hash_before = state.h
            return decrypt(sealed)

        state.encrypt_and_hash = encrypt_and_hash
        state.decrypt_and_hash = decrypt_and_hash

    def hello(self, transcript, domain, kind, port, features=0):
        return (self.identity.public
                + self.identity.sign(domain, transcript)
                + struct.pack("<HBBQ", port, kind, 0, features))

    def take_hello(self, payload, domain, kinds):
        payload = bytes(payload)
        if len(payload) != 108:
            raise ValueError(f"a hello of {len(payload)} bytes")
        public, signature = payload[:32], payload[32:96]
        port, kind, zero, _ = struct.unpack("<HBBQ", payload[96:])
        verify(public, domain, self.hash_before, signature)
        if kind not in kinds or zero != 0:
            raise ValueError(f"kind {kind}, byte 99 {zero}")
        self.remote_public, self.remote_port = public, port
        self.remote_id = blake2b(public)
        self.remote_kind = kind

    def initiate(self, kind=CONTROL, port=0, domain=INITIATOR):
        """-> e   <- e, ee, s, es, hello   -> s, se, hello"""
        self.begin(kind, port, domain)
        return self.finish()

    def begin(self, kind=CONTROL, port=0, domain=INITIATOR):
        self.noise.set_as_initiator()
        self.noise.start_handshake()
        self.watch_payload_hash(
            lambda h: self.hello(h, domain, kind, port))
        first = self.noise.write_message(b"")
        self.send_record(first)
        self.lengths = (len(first),)

    def finish(self):
        second = self.recv_record()
        self.take_hello(self.noise.read_message(second), RESPONDER, {0})
        third = self.noise.write_message(None)
        self.send_record(third)
        self.lengths = *self.lengths, len(second), len(third)
        return self

    def respond(self, port=0, kinds=(CONTROL, BULK)):
        self.noise.set_as_responder()
        self.noise.start_handshake()
        self.watch_payload_hash(lambda h: self.hello(h, RESPONDER, 0, port))
        self.noise.read_message(self.recv_record())
        self.send_record(self.noise.write_message(None))
        self.take_hello(self.noise.read_message(self.recv_record()),
                        INITIATOR, kinds)
        return self

    # ---- frames, section 5 ------------------------------------------------

    def send_frame(self, kind, fields, times=1):
        """The same frame `times` times, all of them in one record."""
        payload = msgpack.packb(fields, use_bin_type=True)
        self.send_record(self.noise.encrypt(
            (struct.pack("<IBBH", len(payload), kind, 0, 0) + payload) * times))

    def recv_frame(self):
        """(type, fields) of the next frame; a frame may span records."""
        while True:
            if len(self.plain) >= 8:
                n, kind, flags, reserved = struct.unpack("<IBBH",
                                                         self.plain[:8])
                if flags or reserved:
                    raise ValueError(f"flags {flags}, reserved {reserved}")
                if len(self.plain) >= 8 + n:
                    fields = msgpack.unpackb(self.plain[8:8 + n], raw=False)
                    self.plain = self.plain[8 + n:]
                    return kind, fields
            self.plain += bytes(self.noise.decrypt(self.recv_record()))

    def wait_frame(self, wanted):
        """The next frame of that type; others (heartbeats) pass by."""
        while True:
            kind, fields = self.recv_frame()
            if kind == wanted:
                return fields

    def close(self):
        self.sock.close()


def dial(port, identity, run_id, seconds, window=0, **options):
    """window: bytes that the kernel receives before somebody reads them."""
    sock = socket.socket()
    sock.settimeout(seconds)
    if window:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    sock.connect(("127.0.0.1", port))
    return Connection(sock, identity, run_id, **options)
