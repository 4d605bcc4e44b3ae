// Checks that the real cuDNN has engines for the graphs of
// engine/ops/attention/attention_graph.cuda.h on an H200, described by a file. The engines also
// compile their code; without a GPU only loading it fails.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "engine/ops/attention/attention_graph.cuda.h"

namespace trireme::cuda {
namespace {

struct Form {
  int64_t heads, kv_heads, width;
  bool causal, bfloat16;
};

// Queries, keys and values interleaved as one projection writes them; lse of ragged sequences for
// more tokens than the batch has.
AttentionShape shape_of(const Form& f) {
  const int64_t packed = (f.heads + 2 * f.kv_heads) * f.width;
  AttentionShape s{.batch = 4, .heads = f.heads, .kv_heads = f.kv_heads, .length = 1024};
  s.width = f.width;
  s.tokens = 8 * s.length;
  s.bfloat16 = f.bfloat16;
  s.causal = f.causal;
  s.q = s.k = s.v = s.dq = s.dk = s.dv = {packed, f.width};
  s.out = s.dout = {f.heads * f.width, f.width};
  return s;
}

class CudnnGraphs : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (!dnn::functions().missing.empty()) GTEST_SKIP() << dnn::functions().missing;
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) GTEST_SKIP() << dlerror();
    std::stringstream json;
    json << std::ifstream(TRIREME_SOURCE_DIR "/tests/cuda/cudnn/h200.json").rdbuf();
    device_ = dnn::describe_device(json.str());
  }
  void expect_engine(dnn::Graph graph) const {
    const std::vector<dnn::Descriptor> found = graph.configurations(device_);
    ASSERT_GE(found.size(), 1u);
    dnn::Plan plan;
    const cudnnStatus_t status = dnn::make_plan(found.front(), device_, plan);
    EXPECT_TRUE(status == CUDNN_STATUS_SUCCESS ||
                status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER)
        << status;
  }
  dnn::Descriptor device_;
};

TEST_P(CudnnGraphs, Forward) { expect_engine(attention_forward_graph(shape_of(GetParam()))); }

TEST_P(CudnnGraphs, RepeatableBackward) {
  expect_engine(attention_backward_graph(shape_of(GetParam())));
}

TEST_P(CudnnGraphs, Backward) {
  AttentionShape s = shape_of(GetParam());
  s.repeatable = false;
  expect_engine(attention_backward_graph(s));
}

TEST_P(CudnnGraphs, RaggedForward) {
  AttentionShape s = shape_of(GetParam());
  s.ragged = true;
  expect_engine(attention_forward_graph(s));
}

// Prompts of a server: any number of tokens.
TEST_P(CudnnGraphs, RaggedForwardOfAnyTokens) {
  AttentionShape s = shape_of(GetParam());
  s.ragged = true;
  s.tokens = 0;
  expect_engine(attention_forward_graph(s));
}

TEST_P(CudnnGraphs, RaggedBackward) {
  AttentionShape s = shape_of(GetParam());
  s.ragged = true;
  s.repeatable = false;
  expect_engine(attention_backward_graph(s));
}

TEST_P(CudnnGraphs, RepeatableRaggedBackward) {
  AttentionShape s = shape_of(GetParam());
  s.ragged = true;
  expect_engine(attention_backward_graph(s));
}

// Callers know the tensors' names, and run() refuses others. Without the lengths for each product
// an engine would write beyond the ends of sequences.
TEST_P(CudnnGraphs, NameTheirTensors) {
  AttentionShape s = shape_of(GetParam());
  std::set<int64_t> forward = {kTensorQ, kTensorK, kTensorV, kTensorOut, kTensorLse, kTensorScale};
  std::set<int64_t> backward = forward;
  backward.insert({kTensorDout, kTensorDq, kTensorDk, kTensorDv, kTensorDelta, kTensorOne});
  if (s.causal) {
    forward.insert(kTensorMinusInf);
    backward.insert(kTensorMinusInf);
  }
  EXPECT_EQ(attention_forward_graph(s).tensors(), forward);
  EXPECT_EQ(attention_backward_graph(s).tensors(), backward);
  s.repeatable = false;
  std::set<int64_t> with_sums = backward;
  with_sums.insert(kTensorDqSum);
  EXPECT_EQ(attention_backward_graph(s).tensors(), with_sums);

  s.repeatable = s.ragged = true;
  const std::set<int64_t> rows = {kTensorQ, kTensorK, kTensorV, kTensorOut, kTensorLse};
  const std::set<int64_t> gradients = {kTensorDout, kTensorDq, kTensorDk, kTensorDv, kTensorDelta};
  for (std::set<int64_t>* tensors : {&forward, &backward}) {
    tensors->insert({kTensorQueries, kTensorKeys, kTensorMinusInf});
    for (const int64_t tensor : rows) tensors->insert(kTensorOffsets + tensor);
  }
  for (const int64_t tensor : gradients) backward.insert(kTensorOffsets + tensor);
  EXPECT_EQ(attention_forward_graph(s).tensors(), forward);
  EXPECT_EQ(attention_backward_graph(s).tensors(), backward);
}

// Negative control: heads that are not a multiple of 16 bytes have no engine.
TEST_P(CudnnGraphs, NoEngineForOddHeads) {
  AttentionShape s = shape_of(GetParam());
  s.width += 1;
  bool found = false;
  try {
    found = !attention_forward_graph(s).configurations(device_).empty();
  } catch (const dnn::Unsupported&) {  // the library may refuse the graph as a whole
  }
  EXPECT_FALSE(found);
}

INSTANTIATE_TEST_SUITE_P(H200, CudnnGraphs,
                         testing::Values(Form{8, 8, 64, true, true}, Form{8, 2, 64, true, false},
                                         Form{8, 2, 128, true, true},
                                         Form{8, 8, 128, false, true}));

}  // namespace
}  // namespace trireme::cuda
