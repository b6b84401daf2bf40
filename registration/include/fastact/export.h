// FASTACT_API marks the functions that libfastact.so exports.
#pragma once

#define FASTACT_API __attribute__((visibility("default")))
