"""Settings: TensorRT-LLM's spellings are taken, numbers that C++ cannot hold are refused by name."""

import pytest

from trtc import BuildConfig, ConfigError, KvCacheConfig, QuantAlgo, QuantConfig, SchedulerConfig


@pytest.mark.parametrize("name", ["w4a16", "W4A16", QuantAlgo.W4A16])
def test_names_of_algorithms_may_be_in_capitals(name):
    assert QuantConfig(quant_algo=name).quant_algo is QuantAlgo.W4A16


@pytest.mark.parametrize("name", ["W3A16", "", 4, None, "İ"])
def test_names_of_no_algorithm_are_refused(name):
    with pytest.raises(ConfigError, match=r"QuantConfig\.quant_algo: got"):
        QuantConfig(quant_algo=name)


def test_tensorrt_llms_names_of_kv_cache_limits_are_taken():
    theirs = KvCacheConfig(free_gpu_memory_fraction=0.3, max_gpu_total_bytes=1 << 30)
    assert theirs == KvCacheConfig(free_memory_fraction=0.3, max_bytes=1 << 30)
    with pytest.raises(ConfigError, match="free_gpu_memory_fraction: no such field"):
        KvCacheConfig(free_memory_fraction=0.3, free_gpu_memory_fraction=0.4)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (KvCacheConfig, "max_tokens"),
        (KvCacheConfig, "max_bytes"),
        (SchedulerConfig, "max_batch_size"),
        (SchedulerConfig, "max_num_tokens"),
        (BuildConfig, "max_seq_len"),
        (BuildConfig, "max_batch_size"),
    ],
)
@pytest.mark.parametrize("value", [2**70, 0, -1, "many", 1.5])
def test_counts_out_of_range_are_refused_by_name(kind, field, value):
    with pytest.raises(ConfigError, match=f"{kind.__name__}.{field}: got"):
        kind(**{field: value})
