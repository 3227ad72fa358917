"""Environments of other libraries, played as heedful's own: gymnasium, reasoning-gym, textarena and OpenEnv.

Importing an adapter never imports its library. A library is loaded when a task is drawn or an episode is played. If it
is missing, the error says how to install it.
"""
