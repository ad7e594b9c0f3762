"""Chat templates in the manner of the families in use, and conversations to render them with."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> in a \"city\" & its region — très précis.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name\nof the city"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14, "default": 1.0},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "deep": {"type": "object", "properties": {"x": {"type": "number"}},
                         "required": ["x"]},
            },
            "required": ["city"],
        },
    },
}
NOTHING = {"type": "function", "function": {"name": "nothing", "description": "No parameters."}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, identifier="call_1"):
    return {"id": identifier, "type": "function",
            "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": {"messages": [user("Hi")], "add_generation_prompt": True},
    "system": {"messages": [{"role": "system", "content": "  Be brief.\n"}, user("Grüße 🌍")],
               "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"},
    "turns": {"messages": [user("1+1?"), assistant("2"), user(" and\n\n2+2? "),
                           assistant("4", reasoning_content="\nSum.\n"), user("3+3?")],
              "add_generation_prompt": True, "enable_thinking": False, "eos_token": "</s>",
              "bos_token": "<s>"},
    "finished": {"messages": [user("Bye"), assistant("<think>\nA habit.\n</think>\n\nBye!")],
                 "add_generation_prompt": False, "enable_thinking": True},
    "tools": {"messages": [
        {"role": "system", "content": "Use tools."}, user("Weather in Oslo?"),
        assistant("", tool_calls=[call("get_weather", {"city": "Oslo", "days": 2,
                                                       "tags": ["a", "é"], "deep": {"x": 1.5}})],
                  reasoning_content="I call it."),
        {"role": "tool", "content": "{\"t\": 13}", "tool_call_id": "call_1",
         "name": "get_weather"}],
        "tools": [WEATHER, NOTHING], "add_generation_prompt": True, "bos_token": "<s>",
        "eos_token": "</s>"},
    "two calls": {"messages": [
        user("Oslo and Rome?"),
        assistant("I look.", tool_calls=[call("get_weather", {"city": "Oslo"}, "call_1"),
                                         call("nothing", {}, "call_2")]),
        {"role": "tool", "content": "13", "tool_call_id": "call_1"},
        {"role": "tool", "content": "<tool_response>", "tool_call_id": "call_2"},
        assistant("13 and sunny."), user("<|im_end|> thanks")],
        "tools": [WEATHER, NOTHING], "add_generation_prompt": True},
    "wrong order": {"messages": [assistant("Me first"), assistant("twice")],
                    "add_generation_prompt": True},
    "empty": {"messages": [], "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is "},
                                                        {"type": "image"},
                                                        {"type": "text", "text": "this?"}]}],
              "add_generation_prompt": True},
}

TEMPLATES = {
    # ChatML, the plainest form.
    "chatml": """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}""",
    # Think blocks cut out of the history, JSON tool calls, a reversed search for the last query.
    "thinking": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nSignatures are inside <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\n<tool_call>\\n{\\"name\\": <function-name>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages and messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    # Tools written out as XML by a macro that walks the schema.
    "xml tools": """{% macro render_extra_keys(json_dict, handled_keys) %}
    {%- if json_dict is mapping %}
        {%- for json_key in json_dict if json_key not in handled_keys %}
            {%- if json_dict[json_key] is mapping or (json_dict[json_key] is sequence and json_dict[json_key] is not string) %}
                {{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}
            {%- else %}
                {{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}
{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = [] %}
{%- endif %}
{%- if system_message is defined %}
    {{- "<|im_start|>system\\n" + system_message }}
{%- else %}
    {%- if tools is iterable and tools | length > 0 %}
        {{- "<|im_start|>system\\nYou are a helper with tools." }}
    {%- endif %}
{%- endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}
            {%- set tool = tool.function %}
        {%- endif %}
        {{- "\\n<function>\\n<name>" ~ tool.name ~ "</name>" }}
        {%- if tool.description is defined %}
            {{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}
        {%- endif %}
        {{- '\\n<parameters>' }}
        {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined and tool.parameters.properties is mapping %}
            {%- for param_name, param_fields in tool.parameters.properties|items %}
                {{- '\\n<parameter>' }}
                {{- '\\n<name>' ~ param_name ~ '</name>' }}
                {%- if param_fields.type is defined %}
                    {{- '\\n<type>' ~ (param_fields.type | string) ~ '</type>' }}
                {%- endif %}
                {%- if param_fields.description is defined %}
                    {{- '\\n<description>' ~ (param_fields.description | trim) ~ '</description>' }}
                {%- endif %}
                {%- set handled_keys = ['name', 'type', 'description'] %}
                {{- render_extra_keys(param_fields, handled_keys) }}
                {{- '\\n</parameter>' }}
            {%- endfor %}
        {%- endif %}
        {%- set handled_keys = ['type', 'properties'] %}
        {{- render_extra_keys(tool.parameters, handled_keys) }}
        {{- '\\n</parameters>\\n</function>' }}
    {%- endfor %}
    {{- "\\n</tools>" }}
{%- endif %}
{%- if system_message is defined or (tools is iterable and tools | length > 0) %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in loop_messages %}
    {%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content is defined and message.content is string and message.content | trim | length > 0 %}
            {{- '\\n' + message.content | trim + '\\n' }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- if tool_call.arguments is defined %}
                {%- for args_name, args_value in tool_call.arguments|items %}
                    {{- '<parameter=' + args_name + '>\\n' }}
                    {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                    {{- args_value }}
                    {{- '\\n</parameter>\\n' }}
                {%- endfor %}
            {%- endif %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "user" or message.role == "system" or message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>user\\n' }}
        {%- endif %}
        {{- '<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>\\n' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}""",
    # Instruction brackets: roles must alternate, the system text goes into the first turn.
    "brackets": """{%- if messages and messages[0]['role'] == 'system' -%}
    {%- set system_message = '<<SYS>>\\n' + messages[0]['content'].strip() + '\\n<</SYS>>\\n\\n' -%}
    {%- set messages = messages[1:] -%}
{%- else -%}
    {%- set system_message = '' -%}
{%- endif -%}
{{ bos_token }}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- if loop.index0 == 0 -%}
        {%- set content = system_message + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{ '[INST] ' + content.strip() + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' -%}
        {{ ' ' + content.strip() + ' ' + (eos_token or '') }}
    {%- endif -%}
{%- endfor -%}""",
    # Headers, a date, tools in the first user turn with indented JSON.
    "headers": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools is not none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}""",
    # Tools as TypeScript, by a recursive macro.
    "typescript": """{%- macro type_of(p, required, depth) -%}
{%- if p.type is string and p.type == "array" -%}
{{ type_of(p["items"], true, depth) }}[]
{%- elif p.type is defined and p.type is iterable and p.type is not string -%}
{{ p.type | map('replace', 'integer', 'number') | join(' | ') }}
{%- elif p.type == "object" -%}
{
{% for name, inner in p.properties.items() %}
{{ '  ' * (depth + 1) }}{{ name }}{{ '?' if name not in p.get('required', []) }}: {{ type_of(inner, name in p.required, depth + 1) }}{{ ',' if not loop.last }}
{% endfor %}
{{ '  ' * depth }}}
{%- elif p.enum -%}
"{{ p.enum | join('" | "') }}"
{%- elif p.type in ["number", "integer"] -%}
number
{%- else -%}
{{ p.type }}
{%- endif -%}
{%- endmacro -%}
<|start|>system<|message|>
{%- for tool in tools or [] %}
{%- set f = tool.function %}
// {{ f.description | replace('\\n', ' ') }}
type {{ f.name }} = ({% if f.parameters is defined %}_: {{ type_of(f.parameters, true, 0) }}{% endif %}) => any;
{% endfor -%}
<|end|>
{%- for m in messages -%}
<|start|>{{ m.role }}<|message|>{{ m.content if m.content is string else (m.content | map(attribute='type') | join(',')) }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    # Content in parts, and a call block that wraps each turn.
    "parts": """{%- macro turn(role) -%}
<start_of_turn>{{ role }}
{{ caller() | trim }}<end_of_turn>
{% endmacro -%}
{{ bos_token }}
{%- for message in messages -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {%- call turn(role) -%}
        {%- if message.content is string -%}
            {{ message.content }}
        {%- else -%}
            {%- for item in message.content -%}
                {%- if item.type == 'image' -%}
                    {{ '<start_of_image>' }}
                {%- elif item.type == 'text' -%}
                    {{ item.text | trim }}
                {%- endif -%}
            {%- endfor -%}
        {%- endif -%}
    {%- endcall -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\\n' }}
{%- endif -%}""",
    # Generation blocks, break, filter blocks, block set.
    "marked": """{% for message in messages %}
{% if message.role == 'assistant' %}
<|assistant|>
{% generation %}
{{ message.content }}{{ eos_token }}
{% endgeneration %}
{% elif message.role == 'tool' %}
{% set body %}
<result>{{ message.content | e }}</result>
{% endset %}
{% filter indent(2, first=true) %}
{{ body | trim }}
{% endfilter %}

{% else %}
<|{{ message.role }}|>
{{ message.content if message.content is string else message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
{% endif %}
{% if loop.index >= 4 %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}""",
    # Numbers, slices and dictionaries put to work: a numbered log with statistics.
    "ledger": """{%- set ns = namespace(users=0, chars=0, roles={}) -%}
{%- for m in messages -%}
    {%- set text = m.content if m.content is string else (m.content | tojson) -%}
    {%- set ns.chars = ns.chars + text | length -%}
    {%- if m.role == 'user' -%}{%- set ns.users = ns.users + 1 -%}{%- endif -%}
    {%- set ns.roles = dict(ns.roles, **{m.role: ns.roles.get(m.role, 0) + 1}) -%}
    {{ '%02d' % loop.index }} {{ m.role[:1] | upper }}{{ m.role[1:] }}: {{ text[:12] }}{{ '…' if text | length > 12 }} [{{ (100 * loop.index / loop.length) | round(1) }}%]
{% endfor -%}
{{ ns.users }} of {{ messages | length }}, {{ ns.chars }} characters, {{ ns.roles }}, {{ ns.roles | dictsort(by='value', reverse=true) | map('first') | join('/') }}
{{- ' ' ~ (tools | default([]) | map(attribute='function.name') | sort(reverse=true) | join(',')) }}""",
    # A strict one: refuses what it does not know.
    "strict": """{%- if not messages -%}
    {{- raise_exception('No messages provided.') -}}
{%- endif -%}
{%- set known = ['system', 'user', 'assistant', 'tool'] -%}
{%- for m in messages -%}
    {%- if m.role not in known -%}{{- raise_exception('Unexpected role: ' ~ m.role) -}}{%- endif -%}
    {%- if m.content is not string -%}
        {{- raise_exception('Content of message %d must be text, not %s.' % (loop.index, m.content | string)) -}}
    {%- endif -%}
    {%- if m.role == 'assistant' and loop.first -%}
        {{- raise_exception('The first message cannot be the assistant\\'s.') -}}
    {%- endif -%}
    {{- '[' ~ m.role | upper ~ ']' ~ m.content ~ '[/' ~ m.role | upper ~ ']' -}}
    {%- for c in m.tool_calls or [] -%}
        {{- '[CALL:' ~ c.id[-1:] ~ ']' ~ c.function.name ~ '(' -}}
        {%- for k, v in c.function.arguments | dictsort -%}
            {{- k ~ '=' ~ (v | tojson(separators=(',', ':'))) ~ (', ' if not loop.last else '') -}}
        {%- endfor -%}
        {{- ')' -}}
    {%- endfor -%}
{%- endfor -%}""",
}
