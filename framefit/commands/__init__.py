"""One file per group of commands: parse, call one function, print, exit."""
