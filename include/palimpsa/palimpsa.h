/* SPDX-License-Identifier: MIT */
/* libpalimpsa: Bayesian metaplastic linear attention on CPUs. This header includes the whole public interface. */
#ifndef PALIMPSA_PALIMPSA_H
#define PALIMPSA_PALIMPSA_H

#include "palimpsa/attribution.h"
#include "palimpsa/batch.h"
#include "palimpsa/bundle.h"
#include "palimpsa/config.h"
#include "palimpsa/context.h"
#include "palimpsa/convert.h"
#include "palimpsa/device.h"
#include "palimpsa/evaluate.h"
#include "palimpsa/grammar.h"
#include "palimpsa/matrix.h"
#include "palimpsa/memory.h"
#include "palimpsa/model.h"
#include "palimpsa/safetensors.h"
#include "palimpsa/sampler.h"
#include "palimpsa/score.h"
#include "palimpsa/session.h"
#include "palimpsa/state.h"
#include "palimpsa/status.h"
#include "palimpsa/surgery.h"
#include "palimpsa/timing.h"
#include "palimpsa/tokenizer.h"
#include "palimpsa/train.h"
#include "palimpsa/view.h"
#include "palimpsa/watch.h"
#include "palimpsa/windows.h"

#endif
