"""How well the metrics and alarms detect a collapse: ROC curves, leads, forced thoughts."""
