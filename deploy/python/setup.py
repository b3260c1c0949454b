"""The wheel's tag: with programs in loco/bin (deploy/wheel.sh puts them there)
it is of one platform and any Python 3; without them it is of none."""
import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HAS_PROGRAMS = os.path.exists(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "loco", "bin",
                 "locod"))


class Programs(Distribution):
    def has_ext_modules(self):
        return HAS_PROGRAMS


class Wheel(bdist_wheel):
    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(distclass=Programs, cmdclass={"bdist_wheel": Wheel})
