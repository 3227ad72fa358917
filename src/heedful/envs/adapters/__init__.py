"""Environments of other libraries, played as heedful's own: gymnasium, reasoning-gym, textarena and OpenEnv.

Importing an adapter never imports its library. That happens where a task is drawn or an episode is played, and a missing
library is answered with a sentence.
"""
