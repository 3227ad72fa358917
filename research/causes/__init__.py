"""What moves readings and success: registered studies of updates and forks, a theorem, and a simulation."""
