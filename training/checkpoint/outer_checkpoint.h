// Sites in a checkpoint (docs/design/outer.md). What all sites share has the usual kinds: weights
// are the shared ones, so that the checkpoint is a model. Site 0 writes them, and its optimizer
// state, under the usual kinds; other tensors of site i have the kind's name with ".site.i". Kinds
// of the outer algorithm:
//   outer.momentum                     of the shared weights
//   outer.local, outer.local.site.i    a site's own weights, between two rounds
//   outer.update                       sum or combination of the updates of rounds that have begun
//                                      and not ended
//   outer.residual.i, ...              residuals of compressed updates (compression_checkpoint.h)
// A site that is a job of its own saves as site 0, except for the residuals, which have its number.
#pragma once

#include "engine/io/sharded_checkpoint.h"
#include "training/step/train_step.h"

namespace trireme {

// Key of the checkpoint's state: step states by site, if there are several.
inline constexpr const char* kSiteStepStates = "site_step_states";
// Key of OuterState::apart and of the rounds that have begun and not ended, by fragment.
inline constexpr const char* kOuterRounds = "outer_rounds";
nlohmann::ordered_json outer_rounds_to_json(const OuterState& state);

// Ending of the kinds of a site's own tensors: CheckpointReader's variant.
std::string site_variant(int site);
// Saved site that site `site` continues: `site` modulo the number of sites in the checkpoint.
int saved_site(const CheckpointReader& reader, int site);

// Gives parts of this site their kinds, and removes those that another site writes.
void name_site_parts(const TrainState& state, std::vector<CheckpointPart>& parts);

// Appends the parts of the outer algorithm that this rank writes.
void add_outer_parts(const TrainState& state, std::vector<CheckpointPart>& parts);

// Loads the allocated state of the outer algorithm. A checkpoint without it leaves it as it is
// after allocation. InputError as for read_stored().
void load_outer(Ctx& ctx, const CheckpointReader& reader, TrainState& state);

}  // namespace trireme
