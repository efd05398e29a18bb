"""Salted records of users: from the settings, from files that change, and none for names that lead elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.no_descriptors import no_descriptors

from penstock_amqp.sasl.credentials import CredentialRecord, fits, format_record, make_record
from penstock_broker.access.users import NoRecord, Users, in_folder, one_user
from penstock_core.login_end import LoginEnd

KEY = b"k" * 32


def users_of(folder: Path | None, **given: str) -> Users:
    return Users(given, in_folder(folder), key=KEY, rounds=4096)


def loaded(users: Users, user: str) -> CredentialRecord:
    record = users.load(user)
    assert record is not None
    assert users.ready(user) == record
    return record


def test_a_password_of_the_settings_is_ready_at_once() -> None:
    record = users_of(None, ann="secret").ready("ann")
    assert isinstance(record, CredentialRecord)
    assert fits("secret", record)


def test_a_file_has_to_be_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    users = users_of(tmp_path)
    assert users.ready("ann") is NoRecord.NO_USER
    (tmp_path / "ann").write_text("first\n")
    assert users.ready("ann") is NoRecord.NOT_LOADED
    assert fits("first", loaded(users, "ann"))
    (tmp_path / "ann").write_text("second\n")
    assert users.ready("ann") is NoRecord.NOT_LOADED
    assert fits("second", loaded(users, "ann"))
    (tmp_path / "ann").unlink()
    assert users.ready("ann") is NoRecord.NO_USER
    assert users.load("ann") is None


def test_users_that_came_and_went_are_forgotten(tmp_path: Path) -> None:
    """A cluster may give each job a user of its own, and take it away."""
    users, record = users_of(tmp_path), format_record(make_record("secret", b"s" * 16, 4096))
    stays = tmp_path / "stays"
    stays.write_text(record)
    kept = loaded(users, "stays")
    for number in range(5000):
        path = tmp_path / f"job{number}"
        path.write_text(record)
        assert users.load(path.name) is not None
        path.unlink()
    assert users.remembered <= 1001
    assert users.ready("stays") is kept


def test_a_file_may_hold_a_record_instead_of_a_password(tmp_path: Path) -> None:
    record = make_record("secret", b"s" * 16, 5000)
    (tmp_path / "ann").write_text(format_record(record) + "\n")
    assert loaded(users_of(tmp_path), "ann") == record


def test_two_users_with_one_password_have_different_records_that_outlive_a_restart() -> None:
    first, second = users_of(None, ann="secret", bob="secret"), users_of(None, ann="secret")
    assert first.ready("ann") != first.ready("bob")
    assert first.ready("ann") == second.ready("ann")


@pytest.mark.parametrize("name", ["../ann", "/etc/passwd", ".hidden", "a\0b", "..", "", "x" * 300])
def test_a_name_that_leads_elsewhere_is_nobody(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    (tmp_path / "ann").write_text("secret")
    (folder / ".hidden").write_text("secret")
    assert users_of(folder).load(name) is None


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"SCRAM-SHA-256$1:AAAA$AAAA:AAAA", b"bad\x07bell"])
def test_a_file_that_cannot_be_used_lets_nobody_in_and_is_named(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ann").write_bytes(content)
    users = users_of(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert users.load("ann") is None
    assert users.ready("ann") is NoRecord.NO_USER
    assert str(tmp_path / "ann") in caplog.text
    assert "bell" not in caplog.text


def test_a_login_ends_with_its_file_or_another_password_only(tmp_path: Path) -> None:
    users, path = users_of(tmp_path, bob="given"), tmp_path / "ann"
    path.write_text("first")
    record = loaded(users, "ann")
    path.write_text("first\n")
    assert users.end_of("ann", record) is None, "a new file with the same password"
    path.write_text("")
    assert users.end_of("ann", record) is None, "a file that can't be used changes nothing for who is in"
    path.write_text("second")
    assert users.end_of("ann", record) is LoginEnd.SECRET_CHANGED
    path.unlink()
    assert users.end_of("ann", record) is LoginEnd.USER_REMOVED
    assert users.end_of("bob", loaded(users, "bob")) is None


def test_a_file_that_cannot_be_read_for_a_moment_is_read_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file does not change when the system has descriptors again."""
    users, path = users_of(tmp_path), tmp_path / "ann"
    path.write_text("first")
    with no_descriptors():
        for _ in range(3):
            with pytest.raises(OSError):
                users.load("ann")
    assert caplog.text.count("can't be read") == 1
    assert users.ready("ann") is NoRecord.NOT_LOADED
    record = loaded(users, "ann")
    path.write_text("second")
    with no_descriptors():
        assert users.end_of("ann", record) is None
    assert users.end_of("ann", record) is LoginEnd.SECRET_CHANGED


def test_a_new_file_with_the_same_password_is_not_hashed_again(tmp_path: Path) -> None:
    users, path = users_of(tmp_path), tmp_path / "ann"
    path.write_text("first")
    record = loaded(users, "ann")
    path.write_text("first\n")
    assert users.load("ann") is record


def test_one_user_has_one_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret")
    users = Users({}, one_user("operator", path), key=KEY, rounds=4096)
    assert fits("secret", loaded(users, "operator"))
    assert users.load("password") is None
