"""Requests made from the OpenAPI document: none crashes the studio, and every answer is as documented."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.web.studios import opened

from whet.web.api import make_app
from whet.web.security import Access, Limits
from whet.web.studio import Studio

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow

# Streams that do not end by themselves.
STREAMS = ("/api/events", "/api/video/stream.mjpg")
HEADERS = {"Host": "localhost", "X-Whet-Client": "schemathesis"}


def test_no_request_crashes_the_studio(tmp_path):
    with opened(tmp_path, n=2) as (workspace, keys):
        app = make_app(Studio(workspace), Access(limits=Limits(rate=1e9, burst=1e9)))
        schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HEADERS)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 30
        for operation in operations:
            if operation.path not in STREAMS:
                check(operation, keys)


def check(operation, keys):
    """Some requests to an operation; half of them ask for an image that is there."""

    @given(case=operation.as_strategy())
    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        for known in (False, True):
            if known and "id" not in (case.path_parameters or {}):
                return
            if known:
                case.path_parameters["id"] = keys[0]
            response = case.call(headers=HEADERS)
            assert response.status_code < 500, (operation.label, response.text)
            if response.status_code >= 400:
                assert response.json().keys() & {"detail", "error"}, operation.label
            case.validate_response(response, checks=[schemathesis.specs.openapi.checks.response_schema_conformance])

    ask()
