"""The page of a Broker on a real API server: who logs in with a Kubernetes token, and who sees messages."""

from __future__ import annotations

import urllib.error
from functools import partial

import pytest
from e2e.kube import wait_for
from support.installed_operator import MINUTE, Installation, Team

pytestmark = pytest.mark.cluster


def page(team: Team, token: str, path: str = "") -> tuple[int, str]:
    """Status and page for the holder of a token; (0, why) while the observer does not answer."""
    try:
        status, body = team.ask_observer(f"/page/{path}", token)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
    return status, body.decode()


def test_roles_of_the_cluster_decide_who_sees_the_page_and_who_sees_messages(installation: Installation) -> None:
    with installation.team() as team:
        namespace = team.kube.namespace
        team.apply_whole(page={"serviceAccountLogin": True, "showMessages": True})
        team.wait_ready("broker/main")
        for name, role in (("ann", "view"), ("bob", "admin"), ("eve", "")):
            team.kube.kubectl("create", "serviceaccount", name)
            if role:
                team.kube.kubectl(
                    "create", "rolebinding", name, f"--clusterrole={role}", f"--serviceaccount={namespace}:{name}"
                )
        mine = f"--audience=penstock.dev/{namespace}/main"
        ann, bob, eve = (team.kube.kubectl("create", "token", name, mine).strip() for name in ("ann", "bob", "eve"))

        wait_for("the observer to say that it may not ask", lambda: page(team, ann)[0] == 503, 2 * MINUTE)
        assert "it does not let the observer ask (403)" in page(team, ann)[1]
        installation.install(**{"pageLogin.brokers": f"{{{namespace}/main}}"})
        wait_for("ann to see the page", lambda: page(team, ann)[0] == 200, MINUTE)

        assert f"Lag of {namespace}/main" in page(team, ann)[1]
        messages = "messages?queue=psub:durable:global:billing"
        assert page(team, ann, messages)[0] == 403
        wait_for("bob to see messages", partial(sees, team, bob, messages), MINUTE)
        assert (page(team, eve)[0], "brokers/page" in page(team, eve)[1]) == (403, True)
        other = team.kube.kubectl("create", "token", "bob").strip()  # good for the API server
        assert (page(team, other)[0], "kubectl create token" in page(team, other)[1]) == (401, True)
        forged = ann[: ann.rindex(".") + 1] + "A" * 342
        assert (page(team, forged)[0], "The API server does not accept" in page(team, forged)[1]) == (401, True)

        assert page(team, team.kube.secret("main-observer-messages", "token") or "", messages)[0] == 200
        team.kube.kubectl("delete", "rolebinding", "ann")
        wait_for("ann to be refused", lambda: page(team, ann)[0] == 403, MINUTE)
        team.apply_whole(page={"serviceAccountLogin": False, "showMessages": False})
        wait_for(
            "the token for messages to go", lambda: team.kube.get("secret", "main-observer-messages") is None, MINUTE
        )
        wait_for(
            "the observer's account to go", lambda: team.kube.get("serviceaccount", "main-observer") is None, MINUTE
        )


def sees(team: Team, token: str, path: str) -> bool:
    """Whether the holder of the token gets this page, which the broker must allow too."""
    return page(team, token, path)[0] == 200
