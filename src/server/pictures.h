// What becomes of pictures: the model reads text only. One from a user is refused; one in a tool's
// result, which the user cannot help, becomes a note.
#pragma once

#include <string>
#include <string_view>

#include "server/api_error.h"

namespace strata::server {

inline constexpr std::string_view kPictureNote =
    "[A picture was here. The model that is served reads text only.]";

inline tl::unexpected<ApiError> picture_refused(const std::string& place) {
  return refuse(400, place,
                "'{}' is a picture, but the model that is served reads text only; take the picture "
                "out of the conversation or describe it in words",
                place);
}

}  // namespace strata::server
