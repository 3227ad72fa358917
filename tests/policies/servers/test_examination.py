"""What a server says of itself, the flags that it lacks, and the ways by which weights would go out to it."""

from __future__ import annotations

import pytest

from fake_server import fake_server
from heedful.policies.servers import Client, ServerRefused
from heedful.policies.servers.examination import (
    ServerFacts,
    base_of,
    check_tokenizer,
    examine,
    refuse_unknown,
    settings_in,
    windows_in,
)

INFO = {
    "vllm_config": {
        "model_config": {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs", "generation_config": "vllm"},
        "scheduler_config": {"enable_chunked_prefill": False},
        "device_config": {"device": "cpu"},
        "parallel_config": {"worker_extension_cls": "heedful.integrations.vllm.worker.Worker"},
        "weight_transfer_config": {"backend": "heedful"},
        "lora_config": {"max_loras": 2},
    },
    "vllm_env": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": True, "VLLM_API_KEY": "secret"},
}


def facts(generates: bool = True, **changed: object) -> ServerFacts:
    return ServerFacts("http://x", "0.32.0", {"policy": 1024}, generates, settings_in(INFO) | changed)


def test_a_server_that_was_started_as_the_page_says_lacks_nothing_and_takes_weights_in_every_way() -> None:
    assert facts().lacks == []
    assert facts().ways_out == {"folder": "", "broadcast": "", "adapters": ""}


@pytest.mark.parametrize(
    ("changed", "flag", "use"),
    [
        ({"generates": False}, "--enable-scale-out", "sample"),
        ({"logprobs_mode": "raw_logprobs"}, "--logprobs-mode processed_logprobs", "sample"),
        ({"generation_config": "auto"}, "--generation-config vllm", "sample"),
        ({"chunked_prefill": True}, "--no-enable-chunked-prefill", "sample"),
    ],
)
def test_each_flag_that_is_missing_is_named_with_its_reason(changed: dict[str, object], flag: str, use: str) -> None:
    (lack,) = facts(**changed).lacks  # type: ignore[arg-type]
    assert (lack.flag, lack.use) == (flag, use)
    assert len(lack.why) > 20


def test_chunked_prefill_is_a_trap_on_a_cpu_only() -> None:
    assert facts(chunked_prefill=True, device="cuda").lacks == []


def test_without_development_mode_settings_are_unknown_and_no_weights_go_out() -> None:
    closed = ServerFacts("http://x", "0.32.0", {"policy": 1024}, True, None)
    assert [lack.flag for lack in closed.lacks] == ["VLLM_SERVER_DEV_MODE=1"]
    assert closed.processed_logprobs is None  # not known, which is not wrong
    assert set(closed.ways_out.values()) == {"needs VLLM_SERVER_DEV_MODE=1"}


@pytest.mark.parametrize(
    ("changed", "way", "needed"),
    [
        ({"worker_extension": ""}, "folder", "--worker-extension-cls"),
        ({"worker_extension": ""}, "broadcast", "--worker-extension-cls"),
        ({"transfer_backend": ""}, "broadcast", "--weight-transfer-config"),
        ({"transfer_backend": "nccl"}, "broadcast", "the backend heedful"),
        ({"lora": False}, "adapters", "--enable-lora"),
        ({"lora_updating": False}, "adapters", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    ],
)
def test_each_way_of_the_weights_names_what_it_needs(changed: dict[str, object], way: str, needed: str) -> None:
    assert needed in facts(**changed).ways_out[way]  # type: ignore[arg-type]


def test_on_a_gpu_a_folder_needs_no_worker_module() -> None:
    assert facts(device="cuda", worker_extension="").ways_out["folder"] == ""


def test_another_server_lacks_nothing_and_takes_no_weights() -> None:
    other = ServerFacts("http://x", "", {"gpt": None})
    assert other.lacks == []
    assert set(other.ways_out.values()) == {"this server takes no weights"}


def test_nothing_of_a_server_is_kept_but_what_matters() -> None:
    assert "secret" not in str(settings_in(INFO))


@pytest.mark.parametrize("tree", [None, [], {"data": 3}, {"data": [3, {"id": 4}]}, {"vllm_config": 7}])
def test_foreign_answers_are_read_as_unknown(tree: object) -> None:
    assert windows_in(tree) == {}
    assert settings_in(tree)["logprobs_mode"] is None


def test_a_server_is_examined_over_its_endpoints() -> None:
    with fake_server() as server:
        client = Client([server.url])
        found = examine(client, client.servers[0])
        assert (found.vllm, found.windows, found.generates) == ("0.32.0", {"policy": 1024}, True)
        assert found.processed_logprobs
        server.dev = server.scale_out = False
        found = examine(client, client.servers[0])
        assert (found.settings, found.generates) == (None, False)
        client.close()


def test_a_wrong_key_is_a_refusal() -> None:
    with fake_server(key="right") as server:
        client = Client([server.url], key="wrong")
        with pytest.raises(ServerRefused, match="401"):
            examine(client, client.servers[0])
        client.close()


def test_a_model_that_the_server_does_not_list_is_refused() -> None:
    refuse_unknown(facts(), "policy")
    refuse_unknown(ServerFacts("http://x", "", {}), "anything")  # a server that lists nothing
    with pytest.raises(ValueError, match="which has policy, found --model-name other"):
        refuse_unknown(facts(), "other")


def test_a_tokenizer_is_compared_with_the_servers_own() -> None:
    with fake_server() as server:
        client = Client([server.url])
        server.tokens = [1, 2, 3]
        assert check_tokenizer(client, "policy", lambda text: [1, 2, 3], "folder").startswith("The server reads")
        server.tokens = [10**3000, 2, 3]
        with pytest.raises(ValueError, match=r"found another one in folder: .* and the server \[10{78}\. Give"):
            check_tokenizer(client, "policy", lambda text: [1, 2, 3], "folder")
        server.tokens = [*range(20), 7]
        with pytest.raises(ValueError, match=r"reads \[16, 17, 18, 19, 8\], and the server \[16, 17, 18, 19, 7\]"):
            check_tokenizer(client, "policy", lambda text: [*range(20), 8], "folder")
        server.tokens = None
        assert "no /tokenize" in check_tokenizer(client, "policy", lambda text: [1], "folder")
        client.close()


def test_the_address_of_a_server_is_written_with_or_without_v1() -> None:
    assert base_of("http://a:1/v1/") == base_of("http://a:1") == "http://a:1"
    assert base_of("https://a/openai/v1") == "https://a/openai"
