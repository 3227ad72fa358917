"""What environments share: actions, answers, tasks, knobs, demonstrations, the wire format."""
