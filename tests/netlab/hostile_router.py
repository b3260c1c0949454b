"""hostile_router.py - a home router that lies, or somebody in the LAN who
answers in its place. Runs in the namespace of a box.

use: python3 hostile_router.py KIND LAN_ADDRESS [ELSEWHERE]

KIND of its UPnP: giant (a description without end), slow (one of a byte in 0.2
s), elsewhere (it names another host, and so does its description), flood (it
never stops to answer), honest (it maps; what it says of its address is ELSEWHERE).
Of PCP: pcp-lies (wrong nonces, then an outer address that is ELSEWHERE, for
ever), of NAT-PMP: pmp-lies (the same). It prints a line a question.
"""
import socket
import struct
import sys
import threading
import time

SSDP = ("239.255.255.250", 1900)
PORT = 5351
HTTP = 5000
DESCRIPTION = """<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><device><deviceList><device>
<deviceList><device><serviceList><service>
<serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>
<controlURL>%s</controlURL>
<eventSubURL>/e</eventSubURL><SCPDURL>/s</SCPDURL>
</service></serviceList></device></deviceList></device></deviceList></device>
</root>"""
ANSWER = """<?xml version="1.0"?><s:Envelope><s:Body><u:%sResponse
xmlns:u="urn:schemas-upnp-org:service:WANIPConnection:1">
<NewExternalIPAddress>%s</NewExternalIPAddress>
<NewConnectionStatus>Connected</NewConnectionStatus>
</u:%sResponse></s:Body></s:Envelope>"""


def say(*words):
    print(*words, flush=True)


def answer_search(kind, here, elsewhere):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                 socket.inet_aton(SSDP[0]) + socket.inet_aton(here))
    s.bind(("", SSDP[1]))  # the last: who waits for the port finds all else
    while True:
        _, sender = s.recvfrom(2000)
        host = elsewhere if kind == "elsewhere" else here
        for number in range(20000 if kind == "flood" else 1):
            s.sendto(f"HTTP/1.1 200 OK\r\nST: urn:schemas-upnp-org:device:"
                     f"InternetGatewayDevice:1\r\nUSN: uuid:{number}\r\n"
                     f"LOCATION: http://{host}:{HTTP}/{number}\r\n\r\n"
                     .encode(), sender)
            if number:
                time.sleep(0.001)
            if number % 1000 == 999:
                say("sent", number + 1)


def serve(kind, connection, elsewhere):
    connection.settimeout(60)
    ask = connection.recv(65536)
    action = ask.split(b"#")[1].split(b'"')[0].decode() if b"#" in ask else ""
    say("http", action or ask.split(b" ")[1].decode())
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n\r\n<root>"
    while kind == "giant":
        connection.sendall(head + b"<x>" * 20000)
        head = b""
    while kind == "slow":
        connection.sendall(head[:1] or b" ")
        head = head[1:]
        time.sleep(0.2)
    text = ANSWER % (action, elsewhere, action) if action else \
        DESCRIPTION % (f"http://{elsewhere}:{HTTP}/c"
                       if kind == "elsewhere" else "/c")
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}"
                       f"\r\n\r\n{text}".encode())


def serve_one(*what):
    try:
        serve(*what)
    except OSError as why:
        say("gone", why)
    what[1].close()


def listen(s, kind, elsewhere):
    while True:
        connection, _ = s.accept()
        threading.Thread(target=serve_one, args=(kind, connection, elsewhere),
                         daemon=True).start()


def pcp(data, nonce, elsewhere):
    outer = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(elsewhere)
    return (struct.pack("!BBBBII12x", 2, 0x81, 0, 0, 0xffffffff, 1) + nonce
            + data[36:40] + data[40:42] + data[40:42] + outer)


def pmp(data, elsewhere):
    if data[1] == 0:
        return struct.pack("!BBHI4s", 0, 128, 0, 1,
                           socket.inet_aton(elsewhere))
    inner, = struct.unpack("!H", data[4:6])
    return struct.pack("!BBHIHHI", 0, 128 + data[1], 0, 1, inner, inner,
                       0xffffffff)


def answer_port_control(kind, elsewhere):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", PORT))
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # another port
    while True:
        data, sender = s.recvfrom(2000)
        say("asked", data[0])
        if kind == "pmp-lies" and data[0] == 2:
            s.sendto(struct.pack("!BBHI", 0, 128, 1, 1), sender)
        elif kind == "pmp-lies" and data[0] == 0:
            other.sendto(pmp(data, "11.9.9.9"), sender)
            s.sendto(pmp(data, elsewhere), sender)
        elif kind == "pcp-lies" and data[0] == 2 and len(data) >= 60:
            # The last byte altered, not replaced: one nonce in 256 ends in any
            # fixed byte, and that lie would be the true nonce.
            for wrong in (bytes(12), data[24:35] + bytes([data[35] ^ 1])):
                s.sendto(pcp(data, wrong, "11.9.9.9"), sender)
            other.sendto(pcp(data, data[24:36], "11.9.9.9"), sender)
            for _ in range(200):
                s.sendto(pcp(data, data[24:36], elsewhere), sender)


def main(kind, here, elsewhere="0.0.0.0"):
    if kind.endswith("-lies"):
        answer_port_control(kind, elsewhere)
    s = socket.create_server(("", HTTP))
    threading.Thread(target=answer_search, args=(kind, here, elsewhere),
                     daemon=True).start()
    listen(s, kind, elsewhere)


if __name__ == "__main__":
    main(*sys.argv[1:])
