// The read queue over the kernel's io_uring. Internal to base.
#pragma once

#include "base/descriptor.h"
#include "base/read_queue.h"

namespace strata {

// `unsupported` where the kernel, or what guards it, does not allow rings.
Result<std::unique_ptr<ReadQueue>> make_ring_queue(Descriptor descriptor, ReadBuffers buffers,
                                                   const std::string& path, bool direct);

}  // namespace strata
