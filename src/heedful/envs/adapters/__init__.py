"""Environments of other libraries, played as heedful's own: gymnasium, reasoning-gym, textarena and OpenEnv.

Promise: importing an adapter never imports its library; that happens where a task is drawn or an episode is played, and
a library that is missing is answered with a sentence.
"""
