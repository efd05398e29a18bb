"""`penstock installation`: the operator's chart asks whether it works, and whether it may go
(docs/how-to/upgrade.md).
"""

from __future__ import annotations

import click

from penstock_cli.extras import needs_extra

__all__ = ["installation"]


@click.group(short_help="Check an installed operator, or whether it may be removed.")
def installation() -> None:
    """Ask a cluster about the operator that is installed there. The hooks of its chart run these commands."""


@installation.command(short_help="Check the CRDs and the operator.")
@click.option("--namespace", required=True, metavar="NAME", help="Namespace of the operator's Deployment.")
@click.option("--deployment", required=True, metavar="NAME", help="The operator's Deployment.")
def check(namespace: str, deployment: str) -> int:
    """Check that the CRDs have what this release needs, that its roles allow to list resources, and that it is ready.

    `helm test` runs this. Exit code 1: something is wrong; each line says what, and what to do.

    \b
    Example, with the kubeconfig of this machine:
      penstock installation check --namespace penstock-system --deployment penstock-penstock-operator
    """
    with needs_extra("operator"):
        import asyncio

        from penstock_operator.installation.inspection import check_installation
    for line in asyncio.run(check_installation(namespace, deployment)):
        click.echo(line)
    return 0


@installation.command(short_help="Fail while there are resources of Penstock.")
@click.option("--crds", type=click.Choice(["kept", "removed"]), required=True, help="What becomes of the CRDs.")
@click.option("--release", required=True, metavar="NAME", help="The release of Helm, for the message.")
@click.option("--namespace", required=True, metavar="NAME", help="Its namespace, for the message.")
@click.option(
    "--namespaces", default="", metavar="NAME[,NAME...]", help="Namespaces that the operator watches. Default: all."
)
def guard(crds: str, release: str, namespace: str, namespaces: str) -> int:
    """Fail while there are Brokers, Exchanges, Subscriptions or Queues, and say what would become of them.

    `helm uninstall` runs it first, and stops if it fails.

    \b
    Example, with the kubeconfig of this machine:
      penstock installation guard --crds kept --release penstock --namespace penstock-system
    """
    with needs_extra("operator"):
        import asyncio

        from penstock_operator.installation.inspection import guard_installation
        from penstock_operator.installation.removal import Release
    watched = tuple(name for name in namespaces.split(",") if name)
    click.echo(asyncio.run(guard_installation(Release(release, namespace, crds == "kept", watched))))
    return 0
