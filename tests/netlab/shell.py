"""shell.py - a small internet to poke around in; see netlab.py --shell."""
import cmd
import shlex
import subprocess

from lab import Failed, Lab, missing, not_built

PICTURE = """
   a  b  c  d          100 Mbit/s each way and 12.5 ms to the hub: 50 ms
    \\ \\/  /           from host to host and back
     \\ net ---- home --- pc1, pc2     home: port-restricted NAT
       |
     office --- desk                  office: symmetric NAT
"""
ACCESS = {"rate": "100mbit", "delay": "12.5ms"}


class Shell(cmd.Cmd):
    """Lines of a person. What is not known here goes to the router as it is
    (control.h): link a net loss 0.01, wire net a rate 5mbit, ..."""

    prompt = "netlab> "

    def __init__(self, lab, spaces):
        super().__init__()
        self.lab = lab
        self.spaces = spaces

    def default(self, line):
        try:
            print(self.lab.tell(line) or "ok")
        except Failed as why:
            print(why)

    def onecmd(self, line):
        try:
            return super().onecmd(line)
        except KeyboardInterrupt:
            print()
        return False

    def emptyline(self):
        pass

    def do_in(self, line):
        """in PLACE COMMAND...: run it there; without one, a shell."""
        words = shlex.split(line) or [""]
        if words[0] not in self.spaces:
            print("in which place? " + " ".join(self.spaces))
            return
        subprocess.run(self.spaces[words[0]].command(
            *(words[1:] or ["bash"])), check=False)

    def do_where(self, line):
        """where: every place and its address."""
        for name, space in self.spaces.items():
            print(f"{name:8} {space.address:15} {space.path}")

    def do_cut(self, line):
        """cut A B: nothing passes between them any more."""
        self.default(f"link {line} cut on")

    def do_heal(self, line):
        """heal A B: and again it does."""
        self.default(f"link {line} cut off")

    def do_stats(self, line):
        """stats: what each wire has carried and dropped."""
        for w in self.lab.stats()["wires"]:
            lost = {k[8:]: w[k] for k in w if k.startswith("dropped") and w[k]}
            print(f"{w['from']:>8} -> {w['to']:8} {w['packets']:10} packets "
                  f"{w['bytes']:14} bytes {lost or ''}")

    def do_quit(self, line):
        """quit (or the end of input): all of it vanishes."""
        return True

    do_EOF = do_quit


def main():
    why = missing() or not_built() and f"{not_built()} is not built"
    if why:
        print(f"netlab: {why}")
        return 1
    with Lab() as lab:
        lab.hub("net")
        spaces = {n: lab.host(n, "net", **ACCESS) for n in "abcd"}
        for name, nat, hosts in (("home", "restricted", ("pc1", "pc2")),
                                 ("office", "symmetric", ("desk",))):
            site = lab.site(name, "net", nat=nat, **ACCESS)
            spaces[name] = site.box
            spaces.update((n, site.host(n)) for n in hosts)
        print(PICTURE)
        Shell(lab, spaces).cmdloop("help: what can be said here")
    return 0
