"""Models that read pictures: a picture in a row of token ids is a run of its own negative ids.

`give_vision` makes a loaded model read such rows, wherever it is called with ids: sampling, scoring and training stay
what they are for text.
"""

from heedful.models.vision.vision import Vision, vision_of

__all__ = ["Vision", "vision_of"]
