// What changes the server itself: loading and unloading the model, and the actions on slots.
#pragma once

#include "server/status_api.h"

namespace strata::server {

// POST /load, /unload and the same below /v1: the body may be empty or name the `model`. Answered
// when it is done: the long form with GET /v1/status, the short one with GET /health.
void serve_load(const StatusContext& context, const HttpRequest& request, const Writer& writer);
void serve_unload(const StatusContext& context, const HttpRequest& request, const Writer& writer);

// POST /slots/ID?action=save|restore|erase.
void serve_slot_action(const StatusContext& context, const HttpRequest& request,
                       const Writer& writer);

// GET and POST /settings: fields of requests that all clients share, {"defaults": {...}}; null
// clears them. Both answer what is in force, with sources.
void serve_settings(const StatusContext& context, const HttpRequest& request, const Writer& writer);

// A plain file name that means the same file on every system: at most 200 bytes of text without
// separators, drive, stream, control characters, a dot in front, a dot or blank at the end, and no
// device's name.
Answer<void> check_file_name(std::string_view name, std::string_view param);

}  // namespace strata::server
