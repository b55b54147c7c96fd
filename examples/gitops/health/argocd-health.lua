-- Health in Argo CD of a SpecBenchRun and of a SpecBenchCampaign. Both have the same conditions.
--
--   Progressing  the answer is not there yet: not seen, queued, at work, or the gate has not decided
--   Healthy      there is an answer, it can be trusted, and no gate failed
--   Degraded     somebody should look: it cannot go on, its numbers cannot be trusted, its gate failed, runs of it
--                failed, its budget is spent
--   Suspended    spec.suspend asks for that, and nothing is at work
--
-- Argo CD's Lua has no string library here. A missing condition is ignored.

local status = obj.status or {}

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

local function answer(health, kind, after)
  local message = conditions[kind].reason
  if conditions[kind].message ~= nil and conditions[kind].message ~= "" then
    message = message .. ": " .. conditions[kind].message
  end
  if after ~= nil and after ~= "" then
    message = message .. " (" .. after .. ")"
  end
  return { status = health, message = message }
end

-- Without spec.gate there is no gate to wait for. A campaign's gate is in the template of its runs.
local function asks_for_gate()
  local spec = obj.spec or {}
  return spec.gate ~= nil or spec.template ~= nil and spec.template.spec ~= nil and spec.template.spec.gate ~= nil
end

if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "waiting for the operator to see this generation" }
end

if is("Stalled", "True") then
  return answer("Degraded", "Stalled")
end

if is("Reconciling", "True") then
  if is("Queued", "True") then
    return answer("Progressing", "Queued")
  end
  return answer("Progressing", "Reconciling", status.progress)
end

if is("Ready", "True") then
  for _, kind in ipairs({ "Trustworthy", "GatePassed" }) do
    if is(kind, "False") then
      return answer("Degraded", kind)
    end
  end
  local runs = status.counts or {}
  if (runs.failed or 0) > 0 then
    return { status = "Degraded", message = runs.failed .. " of " .. runs.total .. " runs failed" }
  end
  if is("BudgetExhausted", "True") then
    return answer("Degraded", "BudgetExhausted")
  end
  if is("GatePassed", "Unknown") and asks_for_gate() then
    return answer("Progressing", "GatePassed")
  end
  return answer("Healthy", "Ready", status.best)
end

if obj.spec ~= nil and obj.spec.suspend == true then
  return { status = "Suspended", message = "spec.suspend is true" }
end

return { status = "Progressing", message = "waiting for the operator" }
