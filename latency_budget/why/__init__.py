"""Why a frame or a network takes the time it takes."""
