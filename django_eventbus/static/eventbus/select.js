/* A checkbox for all rows of a page. Without this script, each row is selected by hand. */
'use strict';
{
    document.addEventListener('DOMContentLoaded', function() {
        const all = document.getElementById('eventbus-all');
        if (!all) {
            return;
        }
        all.hidden = false;
        all.addEventListener('change', function() {
            for (const each of document.querySelectorAll('input[type="checkbox"][name="id"]')) {
                each.checked = all.checked;
            }
        });
    });
}
