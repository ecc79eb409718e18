import os
import threading

import pytest

from artifacts.file_content import read_content, read_text


def test_a_file_and_a_pipe_are_read_to_their_end(tmp_path):
    file, pipe = tmp_path / "file.txt", tmp_path / "pipe"
    file.write_bytes(b"\xef\xbb\xbfwords")
    assert read_text(file) == "words"
    os.mkfifo(pipe)
    content = os.urandom(3_000_000)
    writer = threading.Thread(target=pipe.write_bytes, args=[content])
    writer.start()
    assert read_content(pipe) == content
    writer.join()


@pytest.mark.parametrize(
    ("path", "reason"), [("/dev/zero", "neither a file nor a pipe"), ("/", "Is a directory")]
)
def test_devices_and_folders_are_refused(path, reason):
    with pytest.raises(OSError, match=reason):
        read_content(path)


def test_a_pipe_without_a_writer_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("artifacts.file_content.PIPE_WAIT_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="nothing came out"):
        read_content(tmp_path / "pipe")


def test_a_pipe_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("artifacts.file_content._MAX_PIPE_BYTES", 100_000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def pour():
        with pytest.raises(BrokenPipeError):
            pipe.write_bytes(bytes(10_000_000))

    writer = threading.Thread(target=pour)
    writer.start()
    with pytest.raises(OSError, match="more than 256 MiB"):
        read_content(pipe)
    writer.join()
