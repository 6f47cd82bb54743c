from headstart.gateway import errors


def test_sentences_say_what_to_do() -> None:
    """The port's error carries the port and a way out; the engine's carry its last words."""
    assert "port 8080 on 127.0.0.1" in str(errors.PortInUse("127.0.0.1", 8080))
    assert "--port" in str(errors.PortInUse("127.0.0.1", 8080))
    assert "no model named x" in str(errors.ChildRefused("engine", ["no model named x"]))
    assert "(it wrote nothing)" in str(errors.ChildKeepsDying("engine", 3, "exit code 1", []))


def test_exit_codes() -> None:
    """What the user can mend ends with 2, what the machine is in the way of with 1."""
    assert errors.PortInUse("h", 1).exit_code == 1
    assert errors.ConfigError([]).exit_code == 2
    assert errors.FileEmpty("f", "is empty").exit_code == 2
    assert errors.ChildRefused("engine", []).exit_code == 2
