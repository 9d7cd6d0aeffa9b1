-- Infill's job submission plug-in for slurmctld.
--
-- It touches one partition only. There it turns a malleable job (`sbatch -p infill --nodes=2-8 …`) into a held job of
-- one node. It writes the sizes that the job may have into its admin_comment, which users cannot change. The daemon
-- reads them there and starts the job when it finds nodes for it.
--
--     --nodes=2-8                       infill:nodes=2-8
--     --nodes=4                         infill:nodes=4          one size
--     no --nodes                        infill:nodes=1
--     --comment=infill:nodes=1,2,4,8    infill:nodes=1,2,4,8    a set of sizes; wins over --nodes
--     --comment=infill:KEY=VALUE;…      infill:nodes=…;KEY=VALUE;…
--     --comment=infill:gpus=1-16        infill:gpus=1-16        where GPUs are lent (LEND); so does --gpus=4, one size
--     --gpus-per-node=2                 infill:gpus=…;each=2    each worker has two GPUs of one node; so does the comment
--     --comment=infill:cpus=8-64        infill:cpus=8-64;each=8 on nodes without GPUs (CPUS); --cpus-per-task=16 for larger workers
--     --time=90                         infill:nodes=…;time=90  its lead never gets a longer time limit
--     --hold                            infill:nodes=…;held=owner  not started before its owner releases it
--     --array=0-99%10                   one held job of many tasks; each becomes a malleable job when its turn comes
--     a job named wing:123 (infill's own, for job 123)    infill:wing=123, not held
--
-- It runs under slurmctld's locks. So it does no I/O, and it loops only over the job's own short comment.
-- A site with its own job_submit.lua calls these functions from there: see README.md.

-- The partition of malleable jobs, and the QOS that makes its jobs preemptible.
local PARTITION = "infill"
local QOS = "infill"
-- The account of malleable jobs, if they have a separate one (accounting.sh --own-account): "harvest". With nil they
-- run in the account that the user names, or in the user's default account, and count in its limits.
local ACCOUNT = nil
-- What is lent, as gaps.lend in infill.toml: "nodes" for whole nodes, or "gpus" for GPUs, each with its share of a
-- node. The share comes from the partition (DefCpuPerGPU, DefMemPerGPU) or from the user (--cpus-per-gpu,
-- --mem-per-gpu).
local LEND = "nodes"
-- Where GPUs are lent, nodes without GPUs may be lent in parts of this many CPUs, as nodes.cpus in infill.toml. With
-- nil such nodes are not lent.
local CPUS = nil
-- The largest number of nodes that a job may name. A typo should not make the planner think about a million nodes.
local MAX_NODES = 10000
-- A comment holds a few options. A longer one is refused, because it would be parsed under slurmctld's locks.
local MAX_COMMENT_BYTES = 512
local MAX_SIZES = 64
-- The most GPUs and CPUs that a node may have.
local MAX_GPUS_A_NODE = 64
local MAX_CPUS_A_NODE = 4096

-- Keys of a comment that name sizes.
local NAMES_SIZES = { nodes = true, gpus = true, cpus = true }

local WING_NAME = "^wing:(%d+)$"

-- Whether the user gave a value. The C side marks a missing value by the width of the field.
local function given(value)
   return value ~= nil and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL16 and value ~= slurm.NO_VAL8
end

local function refuse(message)
   -- The message may repeat what the user wrote, and log_user reads its first argument as a format.
   slurm.log_user("%s", "infill: " .. message)
   return slurm.ERROR
end

local function is_size(number)
   return number ~= nil and number >= 1 and number <= MAX_NODES
end

local function bad_size(text)
   return "bad number of nodes '" .. text .. "': sizes are 1 to " .. MAX_NODES
end

-- Returns the range, such as "2-8", if both ends are valid, or nil and the reason.
local function check_range(first, last)
   local low, high = tonumber(first), tonumber(last)
   if not is_size(low) then return nil, bad_size(first) end
   if not is_size(high) then return nil, bad_size(last) end
   if low > high then
      return nil, "bad range of nodes " .. low .. "-" .. high .. ": the first is larger than the second"
   end
   if low == high then return string.format("%d", low) end
   return string.format("%d-%d", low, high)
end

-- Returns the set, such as "1,2,4", in ascending order without repetitions, or nil and the reason.
local function check_set(text)
   local sizes, seen = {}, {}
   for word in string.gmatch(text .. ",", "([^,]*),") do
      local size = string.match(word, "^%d+$") and tonumber(word) or nil
      if not is_size(size) then return nil, bad_size(word) end
      if not seen[size] then
         seen[size] = true
         sizes[#sizes + 1] = size
      end
   end
   if #sizes > MAX_SIZES then return nil, "more than " .. MAX_SIZES .. " sizes" end
   table.sort(sizes)
   return table.concat(sizes, ",")
end

local function check_sizes(text)
   local first, last = string.match(text, "^(%d+)%-(%d+)$")
   if first then return check_range(first, last) end
   return check_set(text)
end

-- The sizes that --nodes asks for. Slurm passes on only the ends of a set (--nodes=1,2,4), so sets go into the
-- comment.
local function sizes_from_nodes(job)
   if not given(job.min_nodes) then return "1" end
   local last = given(job.max_nodes) and job.max_nodes or job.min_nodes
   return check_range(string.format("%d", job.min_nodes), string.format("%d", last))
end

-- Whether a key of the comment names sizes here: the unit that is lent, or CPUs where these are lent too.
local function names_sizes(key)
   return key == LEND or key == "cpus" and LEND == "gpus" and CPUS ~= nil
end

-- Reads the options that the comment has for infill. Returns the sizes (or nil), the further options, nil and the
-- unit of the sizes; or nil, nil and the reason. A comment that does not begin with "infill:" belongs to the user.
local function options_from_comment(comment)
   local text = comment and string.match(comment, "^infill:(.*)$")
   if not text then return nil, "" end
   if #text > MAX_COMMENT_BYTES then return nil, nil, "the comment is longer than " .. MAX_COMMENT_BYTES .. " bytes" end
   local sizes, options, reason, what = nil, "", nil, LEND
   for word in string.gmatch(text, "[^;]+") do
      local key, value = string.match(word, "^([a-z_]+)=([%w%.,:/_+-]+)$")
      if names_sizes(key) and not sizes then
         what = key
         sizes, reason = check_sizes(value)
         if not sizes then return nil, nil, reason end
      elseif key and not NAMES_SIZES[key] and key ~= "wing" and (key ~= "each" or LEND == "gpus") then
         options = options .. ";" .. key .. "=" .. value
      else
         return nil, nil, "cannot read '" .. word .. "' in the comment; expected infill:" .. LEND .. "=SIZES;KEY=VALUE"
      end
   end
   return sizes, options, nil, what
end

-- Parts of the request that infill would otherwise change, or could not tell from its own changes: time limit and
-- hold.
local function wishes(job)
   local text = ""
   -- Unlimited is above NO_VAL.
   if given(job.time_limit) and job.time_limit < slurm.NO_VAL then
      text = text .. ";time=" .. string.format("%d", job.time_limit)
   end
   if given(job.priority) and job.priority == 0 then text = text .. ";held=owner" end
   return text
end

-- The lead is one whole node, whatever size the job may grow to.
local function make_one_node(job)
   job.min_nodes = 1
   job.max_nodes = 1
   job.shared = 0
   if given(job.ntasks_per_node) then
      job.num_tasks = job.ntasks_per_node
   end
   -- The client has multiplied this for all nodes.
   if given(job.min_cpus) then
      local tasks = given(job.num_tasks) and job.num_tasks or 1
      job.min_cpus = tasks * (given(job.cpus_per_task) and job.cpus_per_task or 1)
   end
end

-- Where GPUs are lent: the number that the job asks for, by default the GPUs of one worker.
local function sizes_from_gpus(job, each)
   local count = job.tres_per_job and string.match(job.tres_per_job, "^gres[/:]gpu[:=](%d+)$")
   -- With --gpus and --gpus-per-node the client computes the nodes.
   local most = count and tonumber(count) / each or 1
   if given(job.min_nodes) and job.min_nodes > most or given(job.max_nodes) and job.max_nodes > most then
      return nil, "GPUs are lent here, not nodes: use --comment=infill:gpus=MIN-MAX, or --gpus=N for one size"
   end
   if job.tres_per_job and job.tres_per_job ~= "" and not count then
      return nil, "cannot read " .. job.tres_per_job .. ": use --gpus=N, and --constraint for a type"
   end
   return check_set(count or string.format("%d", each))
end

-- The number of GPUs of one node that each worker has, by --gpus-per-node or --gres and by the comment; or nil and
-- the reason.
local function gpus_each(job, options)
   local asked = job.tres_per_node
   local declared = string.match(options, ";each=([^;]*)")
   local each = declared or "1"
   if asked and asked ~= "" then
      each = string.match(asked, "^gres[/:]gpu[:=](%d+)$") or string.match(asked, "^gres[/:]gpu:[%w_-]+[:=](%d+)$")
         or (string.match(asked, "^gres[/:]gpu$") or string.match(asked, "^gres[/:]gpu:[%w_-]+$")) and "1"
      if not each then return nil, "cannot read " .. asked .. ": use --gpus-per-node=N" end
      if declared and tonumber(declared) ~= tonumber(each) then
         return nil, asked .. " contradicts each=" .. declared
      end
   end
   each = string.match(each, "^%d+$") and tonumber(each)
   if not each or each < 1 or each > MAX_GPUS_A_NODE then
      return nil, "each worker must have 1 to " .. MAX_GPUS_A_NODE .. " GPUs of one node"
   end
   return each
end

-- Whether the sizes contain a multiple of `each`, the GPUs or CPUs of one worker.
local function has_multiples(sizes, each)
   local first, last = string.match(sizes, "^(%d+)%-(%d+)$")
   if first then return math.ceil(tonumber(first) / each) <= math.floor(tonumber(last) / each) end
   for size in string.gmatch(sizes, "%d+") do
      if tonumber(size) % each ~= 0 then return false end
   end
   return true
end

-- The reason if a worker with a part of a node asks for the whole node; else nil.
local function wants_it_whole(job)
   -- 1 is --oversubscribe. All other values reserve the node for one job or user.
   if given(job.shared) and job.shared ~= 1 then return "GPUs are lent here, not nodes: leave out --exclusive" end
   if job.pn_min_memory == 0 then return "GPUs are lent here, not nodes: leave out --mem=0" end
end

-- The lead is one worker, whatever size the job may grow to.
local function make_one_worker(job, each)
   job.min_nodes = 1
   job.max_nodes = 1
   job.tres_per_job = ""
   local asked = job.tres_per_node
   if not asked or asked == "" then job.tres_per_node = string.format("gres/gpu:%d", each) end
end

-- Sizes and options of a lead where GPUs are lent; or nil, nil and the reason.
local function make_lead_of_gpus(job, sizes, options)
   local each, reason = gpus_each(job, options)
   if not each then return nil, nil, reason end
   if not sizes then
      sizes, reason = sizes_from_gpus(job, each)
      if not sizes then return nil, nil, reason end
   end
   if not has_multiples(sizes, each) then
      return nil, nil, "no size of " .. sizes .. " GPUs is a multiple of " .. each .. ", the GPUs of a worker"
   end
   make_one_worker(job, each)
   options = string.gsub(options, ";each=[^;]*", "")
   if each > 1 then options = options .. string.format(";each=%d", each) end
   return sizes, options
end

-- The number of CPUs of each worker, by --cpus-per-task and by the comment; or nil and the reason.
local function cpus_each(job, options)
   local text = string.match(options, ";each=([^;]*)")
   local declared = text and tonumber(text)
   if text and not declared then return nil, "cannot read each=" .. text .. " in the comment" end
   local asked = given(job.cpus_per_task) and job.cpus_per_task or nil
   if declared and asked and declared ~= asked then
      return nil, "--cpus-per-task=" .. asked .. " contradicts each=" .. declared
   end
   local each = asked or declared or CPUS
   if each < 1 or each > MAX_CPUS_A_NODE or each ~= math.floor(each) then
      return nil, "each worker must have 1 to " .. MAX_CPUS_A_NODE .. " CPUs of one node"
   end
   return each
end

-- Sizes and options of a lead on nodes without GPUs, or nil, nil and the reason.
local function make_lead_of_cpus(job, sizes, options)
   local each, reason = cpus_each(job, options)
   if not each then return nil, nil, reason end
   local tres = (job.tres_per_job or "") .. (job.tres_per_node or "") .. (job.tres_per_task or "")
   if string.find(tres, "gpu", 1, true) then
      return nil, nil, "cpus= is for nodes without GPUs: leave out --gpus and --gres=gpu"
   end
   if not has_multiples(sizes, each) then
      return nil, nil, "no size of " .. sizes .. " CPUs is a multiple of " .. each .. ", the CPUs of a worker"
   end
   job.min_nodes = 1
   job.max_nodes = 1
   job.num_tasks = 1
   job.cpus_per_task = each
   job.min_cpus = each
   return sizes, string.gsub(options, ";each=[^;]*", "") .. string.format(";each=%d", each)
end

-- Sizes and options of a lead that has a part of a node, or nil, nil and the reason.
local function make_lead_of_part(job, sizes, options, what)
   local reason = wants_it_whole(job)
   if reason then return nil, nil, reason end
   if what == "cpus" then return make_lead_of_cpus(job, sizes, options) end
   return make_lead_of_gpus(job, sizes, options)
end

-- infill's own hold ends task by task. A user's hold of the whole array would look the same.
local function wants_held_array(job)
   return given(job.array_inx) and given(job.priority) and job.priority == 0
end

local function make_lead(job)
   if wants_held_array(job) then
      return refuse("an array cannot be submitted held: leave out --hold, or use --begin or --dependency")
   end
   if given(job.num_tasks) and job.num_tasks > 1 and not given(job.ntasks_per_node) then
      return refuse("--ntasks fixes the size of the job; use --nodes=MIN-MAX and --ntasks-per-node")
   end
   if job.req_nodes ~= nil then
      return refuse("the daemon chooses the nodes; leave out --nodelist (--exclude and --constraint work)")
   end
   if job.reservation ~= nil and job.reservation ~= "" then
      return refuse("infill does not use reserved nodes; leave out --reservation")
   end
   local sizes, options, reason, what = options_from_comment(job.comment)
   if not options then return refuse(reason) end
   what = what or LEND
   if LEND == "gpus" then
      sizes, options, reason = make_lead_of_part(job, sizes, options, what)
   else
      if not sizes then sizes, reason = sizes_from_nodes(job) end
      if sizes then make_one_node(job) end
   end
   if not sizes then return refuse(reason) end
   job.admin_comment = "infill:" .. what .. "=" .. sizes .. options .. wishes(job)
   job.priority = 0
   -- Also when the user said no: a lead that cannot be requeued can neither move to other nodes nor wait again.
   job.requeue = 1
   return slurm.SUCCESS
end

-- A wing belongs to its lead. It must run where the daemon places it. When it ends it must not come back by itself.
local function make_wing(job, lead)
   if given(job.array_inx) then return refuse("a wing cannot be a job array") end
   if job.req_nodes == nil then return refuse("a wing needs --nodelist") end
   job.admin_comment = "infill:wing=" .. lead
   job.requeue = 0
   if LEND == "nodes" then job.shared = 0 end
   return slurm.SUCCESS
end

-- Whether a list of partitions has infill's, and whether it has others. A malleable job must not run elsewhere too.
local function names_partition(list)
   local found, others = false, false
   for name in string.gmatch(list or "", "[^,]+") do
      if name == PARTITION then found = true else others = true end
   end
   return found, others
end

local function submit_job(job)
   local found, others = names_partition(job.partition)
   if not found then return slurm.SUCCESS end
   if others then return refuse("name only the partition " .. PARTITION) end
   if given(job.het_job_offset) then return refuse("no heterogeneous jobs here") end
   if job.script == nil then return refuse("only batch jobs here: use sbatch") end
   if job.qos == nil then job.qos = QOS end
   if ACCOUNT and job.account == nil then job.account = ACCOUNT end
   local lead = string.match(job.name or "", WING_NAME)
   if lead then return make_wing(job, lead) end
   return make_lead(job)
end

-- Owners may change their job, except for what infill relies on.
local function modify_job(job, job_record, modify_uid)
   if modify_uid == 0 or modify_uid ~= job_record.user_id then return slurm.SUCCESS end
   if job_record.partition ~= PARTITION then
      if names_partition(job.partition) then
         return refuse("a job cannot move into this partition: submit it with sbatch -p " .. PARTITION)
      end
      return slurm.SUCCESS
   end
   if job.admin_comment ~= nil then return refuse("the admin_comment of a malleable job belongs to infill") end
   if given(job.min_nodes) or given(job.max_nodes) then
      return refuse("the sizes of a malleable job cannot change after submission: cancel it and submit it again")
   end
   return slurm.SUCCESS
end

-- Whether a list of partitions may name infill's. A plain search, because it is asked where something else has failed.
local function may_name_partition(list)
   return type(list) == "string" and string.find(list, PARTITION, 1, true) ~= nil
end

-- If a plug-in raises an error, slurmctld 24.11 logs it and accepts the job as it is. A malleable job would then run
-- without sizes. So an error in this file is caught here. Malleable jobs are refused, and all others pass.
local function guarded(list, work, ...)
   local done, result = pcall(work, ...)
   if done then return result end
   slurm.log_error("%s", "infill: error in job_submit.lua: " .. tostring(result))
   if not may_name_partition(list) then return slurm.SUCCESS end
   return refuse("job_submit.lua has failed; slurmctld's log says why")
end

function slurm_job_submit(job, part_list, submit_uid)
   return guarded(job.partition, submit_job, job)
end

function slurm_job_modify(job, job_record, part_list, modify_uid)
   -- The change may also move the job into infill's partition.
   local partitions = tostring(job_record.partition) .. "," .. tostring(job.partition)
   return guarded(partitions, modify_job, job, job_record, modify_uid)
end
