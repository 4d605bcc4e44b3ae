#include "tests/parallel/pipeline/toy_stage.h"

#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/simulate.h"

namespace trireme::test {
namespace {

// Dyadic fractions, so that only the order of the sums can change the bits.
double weight(int chunk) { return 1 + (chunk % 7 - 3) / 64.0; }
double input_value(int micro_batch, int64_t i) {
  return static_cast<double>((micro_batch * 31 + i * 7) % 61 - 30) / 17.0;
}
double target(int micro_batch, int64_t i) {
  return static_cast<double>((micro_batch * 13 + i * 5) % 37 - 18) / 19.0;
}

}  // namespace

ToyResult toy_reference(const Schedule& schedule, int64_t n) {
  const int chunks = schedule.model_chunks();
  ToyResult result{0, std::vector<double>(static_cast<size_t>(chunks))};
  for (int m = 0; m < schedule.micro_batches; ++m) {
    std::vector<std::vector<double>> x(static_cast<size_t>(chunks) + 1);
    for (int64_t i = 0; i < n; ++i) x[0].push_back(input_value(m, i));
    for (int k = 0; k < chunks; ++k)
      for (const double value : x[static_cast<size_t>(k)])
        x[static_cast<size_t>(k) + 1].push_back(value * weight(k) + k);
    std::vector<double> d;
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      d.push_back(target(m, i));
      loss += x.back()[static_cast<size_t>(i)] * target(m, i);
    }
    result.loss += loss;
    if (!schedule.trains()) continue;
    for (int k = chunks; k-- > 0;) {
      double d_weight = 0;
      for (size_t i = 0; i < d.size(); ++i) d_weight += x[static_cast<size_t>(k)][i] * d[i];
      result.d_weight[static_cast<size_t>(k)] += d_weight;
      for (double& value : d) value *= weight(k);
    }
  }
  return result;
}

ToyStage::ToyStage(Ctx& ctx, const Schedule& schedule, int rank, int64_t n)
    : ctx_(ctx),
      schedule_(schedule),
      rank_(rank),
      n_(n),
      saved_(static_cast<size_t>(schedule.chunks) * static_cast<size_t>(schedule.micro_batches)),
      result_{0, std::vector<double>(static_cast<size_t>(schedule.model_chunks()))} {}

ToyStage::Saved& ToyStage::saved(int chunk, int micro_batch) {
  return saved_[static_cast<size_t>(chunk) * static_cast<size_t>(schedule_.micro_batches) +
                static_cast<size_t>(micro_batch)];
}

Activation ToyStage::allocate_message(int, int, bool) {
  return ctx_.allocate("hidden", DType::kF64, {n_});
}

Activation ToyStage::forward(int chunk, int micro_batch, Activation input) {
  const int k = schedule_.model_chunk(rank_, chunk);
  const bool last = k + 1 == schedule_.model_chunks();
  TRIREME_CHECK(input.present() == (k > 0), "chunk ", k, " got an input: ", input.present());
  if (k == 0) {
    input = allocate_message(chunk, micro_batch, false);
    for (int64_t i = 0; i < n_ && !ctx_.planning(); ++i)
      input->as<double>()[i] = input_value(micro_batch, i);
  }
  Activation output = allocate_message(chunk, micro_batch, false);
  if (!ctx_.planning()) {
    double loss = 0;
    for (int64_t i = 0; i < n_; ++i) {
      output->as<double>()[i] = input->as<double>()[i] * weight(k) + k;
      loss += output->as<double>()[i] * target(micro_batch, i);
    }
    if (last) result_.loss += loss;
  }
  if (schedule_.trains()) saved(chunk, micro_batch).input = std::move(input);
  if (last) output.reset();
  return output;
}

Activation ToyStage::backward_input(int chunk, int micro_batch, Activation d_output) {
  const int k = schedule_.model_chunk(rank_, chunk);
  const bool last = k + 1 == schedule_.model_chunks();
  TRIREME_CHECK(d_output.present() == !last, "chunk ", k, " got a gradient: ", d_output.present());
  if (last) {
    d_output = allocate_message(chunk, micro_batch, true);
    for (int64_t i = 0; i < n_ && !ctx_.planning(); ++i)
      d_output->as<double>()[i] = target(micro_batch, i);
  }
  Activation d_input;
  if (k > 0) d_input = allocate_message(chunk, micro_batch, true);
  for (int64_t i = 0; i < n_ && k > 0 && !ctx_.planning(); ++i)
    d_input->as<double>()[i] = d_output->as<double>()[i] * weight(k);
  saved(chunk, micro_batch).d_output = std::move(d_output);
  return d_input;
}

void ToyStage::backward_weight(int chunk, int micro_batch) {
  Saved all = std::move(saved(chunk, micro_batch));
  if (ctx_.planning()) return;
  double d_weight = 0;
  for (int64_t i = 0; i < n_; ++i)
    d_weight += all.input->as<double>()[i] * all.d_output->as<double>()[i];
  result_.d_weight[static_cast<size_t>(schedule_.model_chunk(rank_, chunk))] += d_weight;
}

ToyResult gather(Communicator& group, const ToyResult& mine) {
  // Every value is on one rank and zero on the others, so that the sums are exact.
  ToyResult all = mine;
  all.loss = group.all_reduce_scalar(mine.loss, ReduceOp::kSum);
  for (double& d : all.d_weight) d = group.all_reduce_scalar(d, ReduceOp::kSum);
  return all;
}

namespace {

std::string check_schedule_runs(Communicator& group, const Schedule& schedule, int64_t n) {
  const std::string what =
      concat("rank ", group.rank(), ", ", schedule.name, ", p ", schedule.stages, ", v ",
             schedule.chunks, ", m ", schedule.micro_batches, ", n ", n, ": ");
  Ctx ctx(1, "pipeline test");
  ToyStage stage(ctx, schedule, group.rank(), n);
  const PipelineExecutor executor(schedule, group);
  ctx.arena.begin_planning();
  executor.run(stage, ctx);
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  const int peak = simulate(schedule, {}).ranks[static_cast<size_t>(group.rank())].peak_in_flight;
  for (int step = 0; step < 2; ++step) {
    group.barrier();
    group.reset_traffic();
    stage.clear();
    ctx.arena.begin_step(plan);
    const PipelineReport report = executor.run(stage, ctx);
    ctx.arena.end_step();
    if (report.peak_in_flight != peak)
      return concat(what, report.peak_in_flight, " micro-batches in flight, not ", peak);
    const int64_t sent = group.traffic()[CommKind::kSend].sent_bytes;
    const int64_t all = group.all_reduce_scalar(sent, ReduceOp::kSum);
    if (all != message_count(schedule) * n * 8)
      return concat(what, all, " bytes sent, not ", message_count(schedule) * n * 8);
    if (!(gather(group, stage.result()) == toy_reference(schedule, n)))
      return concat(what, "loss or gradients differ from those of one rank");
  }
  return "";
}

}  // namespace

std::string check_pipeline(Communicator& group) {
  const int p = group.size();
  std::string wrong;
  const auto check = [&](ScheduleKind kind, int v, int m, int64_t n) {
    if (wrong.empty()) wrong = check_schedule_runs(group, make_schedule(kind, p, v, m), n);
  };
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZbH1,
                                  ScheduleKind::kZbH2, ScheduleKind::kForwardOnly})
    for (const int m : {1, 2, 2 * p + 1}) check(kind, 1, m, 50);
  for (const int v : {1, 2, 3}) {
    check(ScheduleKind::kInterleaved, v, 2 * p, 50);
    check(ScheduleKind::kForwardOnly, v, p + 1, 50);
  }
  // Too long for any transport to buffer: sends complete when their receives are posted.
  check(ScheduleKind::kZbH2, 1, 2 * p + 2, 60'000);
  check(ScheduleKind::kInterleaved, 2, 2 * p, 60'000);
  check(ScheduleKind::kGPipe, 1, 5, 60'000);
  return wrong;
}

}  // namespace trireme::test
